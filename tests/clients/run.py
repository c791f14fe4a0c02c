"""Real clients against the broker: every client writes, every client reads what each wrote, Kafka's tools administer.

    run.py [matrix] [tools] [names] [times]        (all of them without arguments)
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import Broker, Tally, java, programs

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# What each client ships: codecs and acks. "idem" is acks=all by an idempotent producer, "all" is without.
WRITERS = {
    "java": (CODECS, ["0", "1", "all", "idem"]),
    "console": (CODECS, ["0", "1", "all", "idem"]),
    "kafka-python": (CODECS, ["0", "1", "all", "idem"]),
    "confluent": (CODECS, ["0", "1", "all", "idem"]),
    "franz-go": (CODECS, ["0", "1", "all", "idem"]),
    "kafka-go": (CODECS, ["0", "1", "all"]),
    "kafkajs": (["none", "gzip"], ["0", "1", "all", "idem"]),
    "kcat": (CODECS, ["0", "1", "all", "idem"]),
    "rdkafka": (CODECS, ["0", "1", "all", "idem"]),
}
READERS = ["java", "console", "kafka-python", "confluent", "franz-go", "kafka-go", "kcat", "rdkafka"]
LINES = 120
JOBS_WITHIN_S = 600


def lines_for(topic):
    """Lines that no other topic has: short ones, ones that compress, and a long one."""
    lines = [f"{topic} line {number} " + "abc " * (number % 40) for number in range(LINES - 1)]
    return lines + [f"{topic} the long one " + "0123456789" * 8_000]


class Clients:
    """Runs files of jobs through client programs; a job's outcome is None or what went wrong."""

    def __init__(self, bootstrap, scratch):
        self.bootstrap = bootstrap
        self.scratch = scratch
        self.programs = programs()
        self.files = 0

    def run(self, client, jobs):
        """The outcome of each job, in order."""
        if not jobs:
            return []
        self.files += 1
        path = os.path.join(self.scratch, f"jobs-{client}-{self.files}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join("\t".join(job) + "\n" for job in jobs))
        command = [*self.programs[client], "jobs", "--bootstrap", self.bootstrap, "--file", path]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=JOBS_WITHIN_S, check=False)
        silent = f"no word from the client; exit {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}"
        outcomes = [silent] * len(jobs)
        for line in done.stdout.decode(errors="replace").splitlines():
            words = line.split("\t")
            if words[0] in ("ok", "fail"):
                outcomes[int(words[1])] = None if words[0] == "ok" else words[2]
        return outcomes

    def one(self, client, *job):
        """The outcome of a single job."""
        return self.run(client, [job])[0]

    def each(self, work):
        """Runs each client's jobs, two clients at a time; gives the outcomes by client."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            futures = {client: pool.submit(self.run, client, jobs) for client, jobs in work.items()}
            return {client: future.result() for client, future in futures.items()}


def matrix(clients, tally):
    """A topic for each (writer, codec, acks); each reader reads each topic and sees exactly the lines written."""
    topics = {client: [(f"m.{client}.{codec}.{acks}", codec, acks) for codec in codecs for acks in all_acks]
              for client, (codecs, all_acks) in WRITERS.items()}
    names = [name for cells in topics.values() for name, _, _ in cells]
    create(clients, [f"{name} 1" for name in names])
    expected = {name: "\n".join(lines_for(name)) + "\n" for name in names}
    for name in names:
        with open(os.path.join(clients.scratch, name), "w", encoding="utf-8") as file:
            file.write(expected[name])
    written = clients.each({
        client: [("write", name, codec, acks, os.path.join(clients.scratch, name)) for name, codec, acks in cells]
        for client, cells in topics.items()})
    for client, cells in topics.items():
        for (name, _, _), outcome in zip(cells, written[client]):
            tally.add(f"{client} writes {name}", outcome)
    # What was not written counts as failed once, above.
    names = [name for client, cells in topics.items()
             for (name, _, _), outcome in zip(cells, written[client]) if outcome is None]
    ends = clients.run("java", [("end", name, str(LINES)) for name in names])
    for name, outcome in zip(names, ends):
        tally.add(f"end of {name}", outcome)
    read_all(clients, tally, [name for name, outcome in zip(names, ends) if outcome is None], expected)


def read_all(clients, tally, names, expected):
    """Every reader reads every topic."""
    out = lambda reader, name: os.path.join(clients.scratch, f"{name}.{reader}")
    outcomes = clients.each({
        reader: [("read", name, "0", "0", str(LINES), out(reader, name)) for name in names] for reader in READERS})
    for reader in READERS:
        for name, outcome in zip(names, outcomes[reader]):
            if outcome is None:
                with open(out(reader, name), encoding="utf-8", newline="") as file:
                    outcome = None if file.read() == expected[name] else "other lines than were written"
            tally.add(f"{reader} reads {name}", outcome)


def create(clients, lines):
    """Creates topics by the Java admin client: lines of a name and a partition count."""
    path = listing(clients, lines)
    outcome = clients.one("java", "create", path)
    if outcome:
        raise RuntimeError(f"create topics: {outcome}")


def listing(clients, lines):
    """A file of these lines."""
    handle, path = tempfile.mkstemp(dir=clients.scratch)
    with os.fdopen(handle, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def names(clients, tally):
    """p07: topic names of every length, seen by each client's own decoder (compact lengths change form at 127)."""
    path = listing(clients, [f"{'n' * length} 1" for length in range(1, 250)])
    tally.add("p07 249 topics created", clients.one("java", "create", path))
    for client in ["java", "franz-go", "kafka-go", "kafkajs", "kcat"]:
        tally.add(f"p07 {client} sees topic names of every length", clients.one(client, "names", path))
    tally.add("p07 249 topics deleted", clients.one("java", "delete", path))


def times(clients, tally):
    """Offsets by time, to the record, in batches of every codec."""
    create(clients, [f"times.{codec} 1" for codec in CODECS])
    for codec in CODECS:
        tally.add(f"offsets by time in a batch of {codec}", clients.one("java", "times", f"times.{codec}", codec))


class Tools:
    """Kafka's command-line tools as a user runs them: a process each."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def run(self, main, *args, stdin=""):
        """What the tool printed; raises when it did not end well."""
        command = [*java(f"org.apache.kafka.tools.{main}"), "--bootstrap-server", self.bootstrap, *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
        return done.stdout

    def topics(self, *args):
        """kafka-topics."""
        return self.run("TopicCommand", *args)


    def configs(self, *args):
        """kafka-configs of the topic that the walk creates."""
        return self.run("ConfigCommand", "--entity-type", "topics", "--entity-name", "walk", *args)


def tools(clients, tally):
    """A walk through the tools; each step says what it expects to see."""
    tool = Tools(clients.bootstrap)
    text = "".join(f"line {number}\n" for number in range(1000))
    steps = {
        "kafka-topics --create": lambda: has(
            tool.topics("--create", "--topic", "walk", "--partitions", "3", "--replication-factor", "1",
                        "--config", "retention.ms=86400000"), r"Created topic walk"),
        "kafka-topics --create again is refused": lambda: refused(
            lambda: tool.topics("--create", "--topic", "walk"), r"\bexists\b"),
        "kafka-topics --create --if-not-exists": lambda: tool.topics("--create", "--topic", "walk", "--if-not-exists"),
        "kafka-topics --list": lambda: has(tool.topics("--list"), r"(?m)^walk$"),
        "kafka-topics --describe": lambda: has(
            tool.topics("--describe", "--topic", "walk"),
            r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=86400000",
            r"Partition: 2\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1"),
        "kafka-topics --describe of no such topic": lambda: refused(
            lambda: tool.topics("--describe", "--topic", "no-such"), "does not exist"),
        "kafka-console-producer": lambda: tool.run("ConsoleProducer", "--topic", "one", stdin=text),
        "kafka-console-consumer from 0": lambda: same(
            tool.run("consumer.ConsoleConsumer", "--topic", "one", "--partition", "0", "--offset", "0",
                     "--max-messages", "1000", "--timeout-ms", "60000"), text),
        "kafka-console-consumer from earliest": lambda: same(
            tool.run("consumer.ConsoleConsumer", "--topic", "one", "--partition", "0", "--offset", "earliest",
                     "--max-messages", "10", "--timeout-ms", "60000"), "".join(text.splitlines(True)[:10])),
        "kafka-console-consumer from 990": lambda: same(
            tool.run("consumer.ConsoleConsumer", "--topic", "one", "--partition", "0", "--offset", "990",
                     "--max-messages", "10", "--timeout-ms", "60000"), "".join(text.splitlines(True)[990:])),
        "kafka-producer-perf-test": lambda: has(
            tool.run("ProducerPerformance", "--topic", "perf", "--num-records", "20000", "--record-size", "1000",
                     "--throughput", "-1", "--command-property", "acks=all"), r"(?m)^20000 records sent"),
        "kafka-get-offsets latest": lambda: has(
            tool.run("GetOffsetShell", "--topic", "perf", "--time", "-1"), r"(?m)^perf:0:20000$"),
        "kafka-get-offsets earliest": lambda: has(
            tool.run("GetOffsetShell", "--topic", "perf", "--time", "earliest"), r"(?m)^perf:0:0$"),
        "kafka-get-offsets max timestamp": lambda: has(
            tool.run("GetOffsetShell", "--topic", "one", "--time", "max-timestamp"), r"(?m)^one:0:\d+$"),
        "kafka-topics --alter": lambda: tool.topics("--alter", "--topic", "walk", "--partitions", "5"),
        "kafka-topics --describe after it": lambda: has(
            tool.topics("--describe", "--topic", "walk"), r"PartitionCount: 5"),
        "kafka-configs --alter": lambda: tool.configs("--alter", "--add-config", "retention.ms=5000,flush.messages=7"),
        "kafka-configs --describe": lambda: has(
            tool.configs("--describe"), r"retention\.ms=5000", r"flush\.messages=7"),
        "kafka-configs --alter, back to the default": lambda: tool.configs(
            "--alter", "--delete-config", "retention.ms"),
        "kafka-configs --describe after it": lambda: lacks(tool.configs("--describe"), r"retention\.ms"),
        "kafka-topics --delete": lambda: tool.topics("--delete", "--topic", "walk"),
        "kafka-topics --list after the delete": lambda: lacks(tool.topics("--list"), r"(?m)^walk$"),
    }
    create(clients, ["one 1", "perf 1"])
    for name, step in steps.items():
        try:
            step()
            tally.add(name)
        except (RuntimeError, subprocess.SubprocessError) as error:
            tally.add(name, error)


def has(text, *patterns):
    """The text matches each pattern."""
    for pattern in patterns:
        if not re.search(pattern, text):
            raise RuntimeError(f"{pattern!r} not in {text!r}")


def lacks(text, pattern):
    """The text does not match."""
    if re.search(pattern, text):
        raise RuntimeError(f"{pattern!r} in {text!r}")


def same(text, expected):
    """The text is exactly that."""
    if text != expected:
        raise RuntimeError(f"got {text[:200]!r}..., expected {expected[:200]!r}...")


def refused(call, reason):
    """The tool fails and says why."""
    try:
        call()
    except RuntimeError as error:
        return has(str(error), reason)
    raise RuntimeError(f"was not refused ({reason})")


def main():
    suites = {"matrix": matrix, "tools": tools, "names": names, "times": times}
    chosen = sys.argv[1:] or list(suites)
    scratch = tempfile.mkdtemp(prefix="seawall-jobs-")
    tally = Tally()
    broker = Broker()
    try:
        clients = Clients(broker.address, scratch)
        for name in chosen:
            suites[name](clients, tally)
        broker.stop()
        tally.add("the broker stops cleanly, tripwires at zero")
    except BaseException as error:
        broker.discard()
        tally.add("the run as a whole", repr(error))
        if not isinstance(error, Exception):
            raise
    shutil.rmtree(scratch)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

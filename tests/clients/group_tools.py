"""Kafka's own tools on groups: kafka-consumer-groups, kafka-groups, and the console consumer without a partition."""

import base64
import os
import re
import shutil
import subprocess
import tempfile
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness import Broker, java, wait_until

RECORDS = 10
# Records carry times a minute apart from here on: 2023-11-14T22:13:20Z.
FIRST_MS = 1_700_000_000_000
WITHIN_S = 90


class Tools:
    """The tools in one JVM."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.process = subprocess.Popen(java("client.GroupTools"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, tool, *args):
        """What a tool printed; raises when it did not end well."""
        words = [tool, "--bootstrap-server", self.bootstrap, *args]
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        status, text = self.process.stdout.readline().split("\t")
        text = base64.b64decode(text).decode()
        if status != "0":
            raise RuntimeError(f"exit {status}: {text.strip()[-800:]}")
        return text

    def groups(self, *args):
        """kafka-consumer-groups; it exits with 0 whatever happened."""
        text = self.run("consumer-groups", *args)
        if "Error:" in text or "Exception" in text:
            raise RuntimeError(text.strip()[-800:])
        return text

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Walk:
    """The steps, each with what it expects to see."""

    def __init__(self, tools, broker, scratch):
        self.tools, self.broker, self.scratch = tools, broker, scratch
        self.live = {}

    def steps(self):
        return {
            "console consumer of a group reads all": self.console,
            "console consumer of a consumer group reads all": self.console_consumer,
            "console consumer goes on where its group was": self.console_again,
            "list": self.list,
            "list by state and type": self.list_filtered,
            "describe offsets": self.describe_offsets,
            "describe state and members of an empty group": self.describe_empty,
            "describe a group that does not exist": self.describe_unknown,
            "describe live groups": self.describe_live,
            "describe all groups": self.describe_all,
            "reset of a live group is refused": self.reset_live,
            "reset-offsets in every form": self.reset_forms,
            "reset-offsets of one partition and of all topics": self.reset_scopes,
            "reset-offsets exported and from a file": self.reset_file,
            "reset-offsets of all groups": self.reset_all_groups,
            "delete-offsets": self.delete_offsets,
            "delete of a live group is refused": self.delete_live,
            "delete": self.delete,
            "kafka-groups lists by kind": self.kafka_groups,
        }

    def console(self):
        text = self.tools.run("console-consumer", "--topic", "walked", "--group", "walker", "--from-beginning",
                              "--max-messages", str(2 * RECORDS), "--timeout-ms", "60000")
        same(sorted(re.findall(r"\d-\d+", text)), sorted(f"{p}-{n}" for p in range(2) for n in range(RECORDS)))

    def console_consumer(self):
        text = self.tools.run("console-consumer", "--topic", "walked", "--group", "walker-848", "--from-beginning",
                              "--max-messages", str(2 * RECORDS), "--timeout-ms", "60000",
                              "--command-property", "group.protocol=consumer")
        same(len(re.findall(r"(?m)^\d-\d+$", text)), 2 * RECORDS)

    def console_again(self):
        write(self.broker, "later", 1)
        for group, extra in (("walker", []), ("walker-848", ["--command-property", "group.protocol=consumer"])):
            self.tools.groups("--reset-offsets", "--group", group, "--topic", "later:0", "--to-earliest", "--execute")
            text = self.tools.run("console-consumer", "--topic", "later", "--group", group, "--max-messages", "1",
                                  "--timeout-ms", "60000", *extra)
            has(text, "(?m)^0-0$")

    def list(self):
        text = self.tools.groups("--list")
        has(text, "(?m)^walker$", "(?m)^walker-848$")

    def list_filtered(self):
        has(self.tools.groups("--list", "--state"), r"walker +(Classic +)?Empty", r"walker-848 +(Consumer +)?Empty")
        has(self.tools.groups("--list", "--state", "Empty"), "walker")
        lacks(self.tools.groups("--list", "--state", "Stable"), "walker")
        has(self.tools.groups("--list", "--type"), r"walker +Classic", r"walker-848 +Consumer")
        lacks(self.tools.groups("--list", "--type", "consumer"), r"(?m)^walker +")

    def describe_offsets(self):
        for group in ("walker", "walker-848"):
            text = self.tools.groups("--describe", "--group", group, "--offsets")
            has(text, rf"{group} +walked +0 +(- +)?{RECORDS} +{RECORDS} +0", rf"{group} +walked +1 +(- +)?{RECORDS} +{RECORDS} +0")
            has(self.tools.groups("--describe", "--group", group, "--verbose"), rf"{group} +walked +1")

    def describe_empty(self):
        for group in ("walker", "walker-848"):
            has(self.tools.groups("--describe", "--group", group, "--state"), rf"{group} .*Empty +.*0")
            has(self.tools.groups("--describe", "--group", group, "--members"), "no active members")

    def describe_unknown(self):
        refused(lambda: self.tools.groups("--describe", "--group", "nobody"), "does not exist|GroupIdNotFound|not found")

    def describe_live(self):
        self.join("live", {})
        self.join("live-848", {"group.protocol": "consumer"})
        for group in ("live", "live-848"):
            has(self.tools.groups("--describe", "--group", group, "--state"), rf"{group} .*(range|uniform) .*Stable +.*1")
            has(self.tools.groups("--describe", "--group", group, "--members"), rf"{group} .*/127\.0\.0\.1 .*rdkafka +2")
            has(self.tools.groups("--describe", "--group", group, "--members", "--verbose"), r"walked[(:]0,1")
            has(self.tools.groups("--describe", "--group", group, "--offsets"), rf"{group} +walked +1 .*/127\.0\.0\.1 +rdkafka")

    def describe_all(self):
        text = self.tools.groups("--describe", "--all-groups")
        has(text, "(?m)^walker +walked", "(?m)^live +walked", "(?m)^live-848 +walked", "(?m)^walker-848 +walked")
        has(self.tools.groups("--describe", "--all-groups", "--state"), "(?m)^walker .*Empty", "(?m)^live-848 .*Stable")
        has(self.tools.groups("--describe", "--all-groups", "--members"), "(?m)^live .*rdkafka")

    def join(self, group, extra):
        """A member that stays; it has read all and committed."""
        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": group, "auto.offset.reset": "earliest",
                             "enable.auto.commit": False, "log_level": 0, **extra})
        consumer.subscribe(["walked"])
        self.live[group] = consumer
        got = []
        deadline = time.monotonic() + WITHIN_S
        while len(got) < 2 * RECORDS:
            got += consumer.consume(100, timeout=0.5)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{group}: {len(got)} records")
        consumer.commit(asynchronous=False)

    def leave(self):
        for consumer in self.live.values():
            consumer.close()
        self.live = {}

    def reset_live(self):
        for group in ("live", "live-848"):
            reset = lambda: self.tools.groups("--reset-offsets", "--group", group, "--topic", "walked", "--to-earliest", "--execute")
            refused(reset, "inactive|Stable")

    def reset_to(self, expected, *form):
        """Shown by a dry run and not done; then done and seen."""
        for group in ("walker", "walker-848"):
            base = ["--reset-offsets", "--group", group, "--topic", "walked", *form]
            before = self.offsets(group)
            wanted = rf"(?m)^{group} +walked +0 +{expected}\b"
            has(self.tools.groups(*base, "--dry-run"), wanted)
            same(self.offsets(group), before)
            has(self.tools.groups(*base, "--execute"), wanted)
            same(self.offsets(group), (expected, expected))

    def offsets(self, group):
        """The committed offsets of partitions 0 and 1 of the topic."""
        text = self.tools.groups("--describe", "--group", group, "--offsets")
        rows = dict(re.findall(rf"(?m)^{group} +walked +(\d) +(\d+) ", text))
        return int(rows["0"]), int(rows["1"])

    def reset_forms(self):
        at = lambda minute: time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(FIRST_MS // 1000 + 60 * minute))
        self.reset_to(0, "--to-earliest")
        self.reset_to(RECORDS, "--to-latest")
        self.reset_to(4, "--to-offset", "4")
        self.reset_to(6, "--shift-by", "2")
        self.reset_to(3, "--shift-by", "-3")
        self.reset_to(3, "--to-current")
        self.reset_to(5, "--to-datetime", at(5))
        self.reset_to(RECORDS, "--to-datetime", at(1_000))
        self.reset_to(0, "--by-duration", "P1500D")
        self.reset_to(RECORDS, "--to-offset", "1000")

    def reset_scopes(self):
        self.reset_to(2, "--to-offset", "2")
        self.tools.groups("--reset-offsets", "--group", "walker", "--topic", "walked:1", "--to-offset", "7", "--execute")
        same(self.offsets("walker"), (2, 7))
        self.tools.groups("--reset-offsets", "--group", "walker", "--all-topics", "--to-earliest", "--execute")
        same(self.offsets("walker"), (0, 0))

    def reset_file(self):
        text = self.tools.groups("--reset-offsets", "--group", "walker", "--topic", "walked", "--to-offset", "8", "--export",
                                 "--dry-run")
        has(text, r'"?walked"?,0,8', r'"?walked"?,1,8')
        path = os.path.join(self.scratch, "offsets.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in text.splitlines() if "walked" in line))
        self.tools.groups("--reset-offsets", "--group", "walker", "--from-file", path, "--execute")
        same(self.offsets("walker"), (8, 8))

    def reset_all_groups(self):
        self.leave()
        self.tools.groups("--reset-offsets", "--all-groups", "--topic", "walked", "--to-offset", "1", "--execute")
        for group in ("walker", "walker-848"):
            same(self.offsets(group), (1, 1))

    def delete_offsets(self):
        has(self.tools.groups("--delete-offsets", "--group", "walker", "--topic", "walked:1"), r"walked +1 +Successful")
        text = self.tools.groups("--describe", "--group", "walker", "--offsets")
        has(text, "(?m)^walker +walked +0")
        lacks(text, "(?m)^walker +walked +1")

    def delete_live(self):
        self.join("busy", {})
        refused(lambda: self.tools.groups("--delete", "--group", "busy"), "not empty|NonEmpty")
        refused(lambda: self.tools.groups("--delete-offsets", "--group", "busy", "--topic", "walked"), "subscribed")
        self.leave()

    def delete(self):
        for group in ("walker", "walker-848", "busy"):
            has(self.tools.groups("--delete", "--group", group), "successful")
        lacks(self.tools.groups("--list"), "(?m)^(walker|busy)$")
        has(self.tools.groups("--delete", "--all-groups"), "successful")
        same(self.tools.groups("--list").strip(), "")

    def kafka_groups(self):
        self.join("live", {})
        self.join("live-848", {"group.protocol": "consumer"})
        has(self.tools.run("groups", "--list"), r"live +Classic +consumer", r"live-848 +Consumer +consumer")
        lacks(self.tools.run("groups", "--list", "--group-type", "consumer"), r"(?m)^live +")
        has(self.tools.run("groups", "--list", "--consumer"), r"(?m)^live +", r"(?m)^live-848 +")
        self.leave()


def write(broker, topic, partitions):
    """Records `PARTITION-NUMBER`, a minute apart."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for partition in range(partitions):
        for number in range(RECORDS):
            producer.produce(topic, value=f"{partition}-{number}", partition=partition, timestamp=FIRST_MS + 60_000 * number)
    if producer.flush(60):
        raise RuntimeError("records were not written")


def has(text, *patterns):
    """The text matches each pattern."""
    for pattern in patterns:
        if not re.search(pattern, text):
            raise RuntimeError(f"{pattern!r} not in {text!r}")


def lacks(text, pattern):
    """The text does not match."""
    if re.search(pattern, text):
        raise RuntimeError(f"{pattern!r} in {text!r}")


def same(got, expected):
    """The two are equal."""
    if got != expected:
        raise RuntimeError(f"got {got!r}, expected {expected!r}")


def refused(call, reason):
    """The tool fails and says why."""
    try:
        call()
    except RuntimeError as error:
        return has(str(error), reason)
    raise RuntimeError(f"was not refused ({reason})")


def run(tally):
    """All steps on a broker of their own, without a retention that would take the old records."""
    broker = Broker(["group.initial.rebalance.delay.ms=0", "log.retention.ms=-1"])
    scratch = tempfile.mkdtemp(prefix="seawall-group-tools-")
    tools = Tools(broker.address)
    try:
        write(broker, "walked", 2)
        for name, step in Walk(tools, broker, scratch).steps().items():
            try:
                step()
                tally.add(f"tools: {name}")
            except (RuntimeError, KeyError) as error:
                tally.add(f"tools: {name}", error)
        tools.close()
        broker.stop()
        tally.add("the broker of the tools stops cleanly, tripwires at zero")
    except BaseException:
        tools.process.kill()
        broker.discard()
        raise
    shutil.rmtree(scratch)

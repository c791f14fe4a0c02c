"""Groups of real clients: members come, go, die in the middle of a rebalance, and the broker dies under them.

    groups.py [NAME...]        some of the groups below, or `tools`; all of them without arguments

Each group reads one topic while it is being written to. Its members are processes of their own, each with a file in
which it writes down, line by line, milliseconds, a word, and what belongs to it:

    start | assigned 0,1 | revoked 0,1 | lost 0 | record PARTITION OFFSET VALUE | committed PARTITION OFFSET | end
    note TEXT (went wrong, went on) | error TEXT (gave up)

From these files it is judged: every record was delivered; one that was delivered again had not been committed, and who had
it first was killed, or the broker was before it could commit; static members had the same partitions after the crash of the broker as before.

Run it with the Python of tests/.cache/venv.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import group_tools
from harness import CACHE, HERE, Broker, Tally, java, wait_until

PARTITIONS = 6
# Kafka takes longer than we do to come back, with groups whose sessions are running already.
SESSION_MS = 20_000 if os.environ.get("SEAWALL_TEST_KAFKA") else 6_000
PATIENCE_S = 100
# Sessions of the consumer protocol are the broker's business.
SETTINGS = [
    "group.initial.rebalance.delay.ms=500", f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.min.session.timeout.ms=5000", "group.consumer.heartbeat.interval.ms=1000",
    "group.consumer.min.heartbeat.interval.ms=1000",
]
# The members of each group at first: client, protocol, assignor. One more like the last one joins them later.
CLASSIC, CONSUMER = "classic", "consumer"
GROUPS = {
    "java-range": [("java", CLASSIC, "range")] * 2,
    "java-cooperative": [("java", CLASSIC, "cooperative-sticky")] * 2,
    "java-consumer": [("java", CONSUMER, "")] * 2,
    "librdkafka-range": [("confluent", CLASSIC, "range")] * 3,
    "librdkafka-cooperative": [("confluent", CLASSIC, "cooperative-sticky")] * 3,
    "librdkafka-consumer": [("confluent", CONSUMER, "")] * 3,
    "kafka-python": [("kafka-python", CLASSIC, "range")] * 3,
    "franz-go": [("franz-go", CLASSIC, "cooperative-sticky")] * 4,
    "sarama": [("sarama", CLASSIC, "range")] * 3,
    "kafkajs": [("kafkajs", CLASSIC, "")] * 3,
    "mixed-range": [("java", CLASSIC, "range"), ("kafka-python", CLASSIC, "range"), ("sarama", CLASSIC, "range"),
                    ("franz-go", CLASSIC, "range"), ("confluent", CLASSIC, "range")],
    "mixed-consumer": [("java", CONSUMER, ""), ("confluent", CONSUMER, "")],
    "mixed-protocols": [("confluent", CLASSIC, "range"), ("kafka-python", CLASSIC, "range"), ("confluent", CONSUMER, "")],
    "static-classic": [("confluent", CLASSIC, "range"), ("franz-go", CLASSIC, "range"), ("java", CLASSIC, "range")],
    "static-consumer": [("confluent", CONSUMER, "")] * 3,
}


# g10: three groups in a row. Each writes what it reads into the topic of the next one, and then commits.
CHAIN = "chain"
STAGES = [("confluent", CLASSIC, "range"), ("confluent", CLASSIC, "cooperative-sticky"), ("confluent", CONSUMER, "")]


def command(client):
    """How a member of a client is started; its options follow."""
    python = os.path.join(CACHE, "venv", "bin", "python")
    go = os.path.join(CACHE, "go", "client")
    return {
        "java": java("client.Member"),
        "confluent": [python, os.path.join(HERE, "python", "member_confluent.py")],
        "kafka-python": [python, os.path.join(HERE, "python", "member_kafka_python.py")],
        "franz-go": [go, "franz-go", "member"],
        "sarama": [go, "sarama", "member"],
        "kafkajs": ["node", os.path.join(HERE, "node", "member.js")],
    }[client]


class Member:
    """A member as a process, and what it has written down so far."""

    def __init__(self, suite, group, number, kind, **more):
        self.client, protocol, assignor = kind
        self.instance = more.get("instance")
        self.name = f"{group}-{number}-{self.client}"
        self.path = os.path.join(suite.scratch, self.name)
        self.lines, self.read_to = [], 0
        self.killed, self.stopped = False, False
        words = [*command(self.client), "--bootstrap", suite.bootstrap, "--group", group, "--topic", group,
                 "--protocol", protocol, "--assignor", assignor, "--session", str(SESSION_MS), "--out", self.path]
        for name, value in more.items():
            words += ["--" + name, value]
        with open(self.path + ".err", "ab") as err:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                            env=os.environ | suite.environment)

    def look(self):
        """Reads what is new in its file; gives all lines, split."""
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                file.seek(self.read_to)
                text = file.read()
            whole = text[:text.rfind("\n") + 1]
            self.read_to += len(whole.encode())
            for line in whole.splitlines():
                stamp, *words = line.split("\t")
                self.lines.append((int(stamp), *words))
        if not self.killed and not self.stopped and self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")
        for line in self.lines:
            if line[1] == "error":
                raise RuntimeError(f"{self.name}: {line[2:]}")
        return self.lines

    def has(self, word):
        """Whether it has written a line with that word."""
        return any(line[1] == word for line in self.look())

    def records(self):
        """(milliseconds, partition, offset) of each record."""
        return [(line[0], int(line[2]), int(line[3])) for line in self.look() if line[1] == "record"]

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM, and an orderly end; before its start it would not know how."""
        wait_until(f"{self.name} has started", lambda: self.has("start"), PATIENCE_S)
        self.stopped = True
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        if status not in (0, 143) or not self.has("end"):
            raise RuntimeError(f"{self.name} stopped with {status}: {self.last_words()}")

    def last_words(self):
        with open(self.path + ".err", encoding="utf-8", errors="replace") as file:
            return str(self.lines[-3:]) + " " + file.read()[-500:]


class Group(threading.Thread):
    """One group on its way through the suite. It stops at the places where all groups meet."""

    CRASH, STOP, END = 1, 2, 3

    def __init__(self, suite, name):
        super().__init__(name=name, daemon=True)
        self.suite, self.group = suite, name
        self.static = name.startswith("static")
        self.kinds = GROUPS.get(name)
        self.members = []
        self.reached = 0
        self.error, self.summary = None, ""

    def run(self):
        try:
            self.walk()
        except BaseException as error:  # told by whoever waits for this thread
            steps = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            self.error = f"{error!r} in {' > '.join(steps[1:])}"
        finally:
            self.reached = self.END
            for member in self.members:
                if member.process.poll() is None:
                    member.process.kill()

    def walk(self):
        for kind in self.kinds:
            self.add(kind)
        wait_until("every member has got records", lambda: all(m.records() for m in self.members), PATIENCE_S)
        self.progress("all have joined")
        self.kill_in_a_rebalance()
        self.leave_one()
        self.crash_of_the_broker()
        self.reached = self.STOP
        self.suite.written.wait(4 * PATIENCE_S)
        produced = self.suite.produced[self.group]
        wait_until("all was delivered", lambda: self.delivered() >= produced, PATIENCE_S)
        for member in self.living():
            member.stop()
        self.judge(produced)

    def add(self, kind, instance=None):
        number = len(self.members)
        if self.static and not instance:
            instance = f"{self.group}-{number}"
        more = {"instance": instance} if instance else {}
        self.members.append(Member(self.suite, self.group, number, kind, **more))
        return self.members[-1]

    def living(self):
        return [member for member in self.members if member.process.poll() is None]

    def delivered(self):
        return {(partition, offset) for m in self.members for _, partition, offset in m.records()}

    def progress(self, why):
        """Every partition goes on: each brings a record that was delivered from now on."""
        since = time.time_ns() // 1_000_000
        wait_until(f"every partition goes on: {why}", lambda: len({
            partition for m in self.living() for at, partition, _ in m.records() if at >= since}) == PARTITIONS, PATIENCE_S)

    def kill_in_a_rebalance(self):
        """Another one joins; while the others make room for it, one of them is killed."""
        if self.static:
            return
        old, new = list(self.members), self.add(self.kinds[-1])
        seen = {member: sum(line[1] == "revoked" for line in member.look()) for member in old}
        moved = lambda: any(sum(line[1] == "revoked" for line in m.look()) > seen[m] for m in old)
        wait_until("the rebalance has begun", moved, PATIENCE_S)
        old[0].kill()
        wait_until("the new member gets records", new.records, PATIENCE_S)
        self.progress("one was killed in a rebalance")

    def leave_one(self):
        """One leaves in good order. A static one comes back within its session and has its partitions again."""
        one = self.living()[-1]
        before = self.owners()
        one.stop()
        if self.static:
            again = self.add(self.kinds[self.members.index(one)], one.instance)
            wait_until("it is back", lambda: set(p for _, p, _ in again.records()) == before[one.name], PATIENCE_S)
        self.progress("one left")

    def crash_of_the_broker(self):
        before = self.owners()
        self.reached = self.CRASH
        self.suite.restarted.wait(4 * PATIENCE_S)
        self.progress("the broker was killed and restarted")
        if self.static and self.owners() != before:
            raise RuntimeError(f"after the crash {self.owners()}, before it {before}")

    def owners(self):
        """The partitions of which each living member had the last record."""
        last = {}
        for member in self.living():
            for at, partition, _ in member.records():
                last[partition] = max(last.get(partition, (0, "")), (at, member.name))
        owned = {member.name: set() for member in self.living()}
        for partition, (_, name) in last.items():
            owned[name].add(partition)
        return owned

    def judge(self, produced):
        """Every record was delivered; again only what was not committed, after a crash of who had it first."""
        deliveries, committed = {}, {}
        for member in self.members:
            for at, partition, offset in member.records():
                deliveries.setdefault((partition, offset), []).append((at, member))
            for line in member.lines:
                if line[1] == "committed":
                    committed.setdefault(int(line[2]), []).append((line[0], int(line[3])))
        if set(deliveries) != produced:
            raise RuntimeError(f"{len(produced)} written, {len(set(deliveries) & produced)} of them delivered, "
                               f"{len(set(deliveries) - produced)} others delivered")
        again = {record: sorted(all_of_it, key=lambda one: one[0])
                 for record, all_of_it in deliveries.items() if len(all_of_it) > 1}
        for (partition, offset), all_of_it in again.items():
            for (first, had_it), (at, _) in zip(all_of_it, all_of_it[1:]):
                safe = [stamp for stamp, end in committed.get(partition, []) if end > offset and stamp < at]
                crash = had_it.killed or first <= self.suite.crashed_at <= at
                if safe or not crash:
                    raise RuntimeError(f"{partition} at {offset} again, crash: {crash}, committed: {bool(safe)}, "
                                       f"by {[(at, m.name) for at, m in all_of_it]}")
        self.summary = f"({len(produced)} records, {len(again)} of them twice)"


class Chain(Group):
    """g10: while members of three groups in a row come and go, every record arrives once at the end."""

    def __init__(self, suite):
        super().__init__(suite, CHAIN)
        self.stages = [[] for _ in STAGES]
        self.topics = [CHAIN, *(f"{CHAIN}-{stage}" for stage in range(1, len(STAGES) + 1))]

    def walk(self):
        for stage in range(len(STAGES)):
            self.come(stage)
            self.come(stage)
        stage = 0
        while not self.suite.restarted.is_set() or stage % len(STAGES) != 0:
            new = self.come(stage % len(STAGES))
            wait_until("the new member gets records", new.records, PATIENCE_S)
            oldest = self.stages[stage % len(STAGES)].pop(0)
            oldest.stop()
            stage += 1
            if stage >= len(STAGES):
                self.reached = max(self.reached, self.CRASH)
        self.reached = self.STOP
        self.suite.written.wait(4 * PATIENCE_S)
        count = len(self.suite.produced[CHAIN])
        wait_until("all has arrived", lambda: len(self.arrived()) >= count, PATIENCE_S)
        for member in self.living():
            member.stop()
        arrived = self.arrived()
        if len(arrived) != count or len(set(arrived)) != count:
            raise RuntimeError(f"{count} written, {len(arrived)} arrived, {len(set(arrived))} of them different")
        self.summary = f"({count} records through {len(STAGES)} groups, {len(self.members)} members came and went)"

    def come(self, stage):
        member = Member(self.suite, self.topics[stage], len(self.members), STAGES[stage], into=self.topics[stage + 1])
        self.members.append(member)
        self.stages[stage].append(member)
        return member

    def arrived(self):
        """The values in the last topic."""
        for member in self.members:
            member.look()
        consumer = Consumer({"bootstrap.servers": self.suite.broker.address, "group.id": "unused", "log_level": 0,
                             "enable.auto.commit": False, "enable.partition.eof": True})
        partitions = [TopicPartition(self.topics[-1], partition, 0) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        values, ends = [], 0
        while ends < PARTITIONS:
            for message in consumer.consume(1000, timeout=1):
                if message.error() is None:
                    values.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ends += 1
        consumer.close()
        return values


class Suite:
    """The broker, what is written to it, and the groups."""

    def __init__(self, names, broker=None, bootstrap=None, environment=None):
        """Members connect to `bootstrap` and have `environment` besides; what watches over them uses the broker's address."""
        self.scratch = tempfile.mkdtemp(prefix="seawall-groups-")
        self.broker = broker or Broker(SETTINGS)
        self.bootstrap = bootstrap or self.broker.address
        self.environment = environment or {}
        self.produced = {name: set() for name in names}
        self.sent, self.crashed_at = 0, 0
        self.writing, self.written, self.restarted = True, threading.Event(), threading.Event()
        self.groups = [Chain(self) if name == CHAIN else Group(self, name) for name in names]

    def create_topics(self):
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        names = list(self.produced)
        if CHAIN in names:
            names += next(group.topics[1:] for group in self.groups if group.group == CHAIN)
        topics = [NewTopic(name, PARTITIONS, 1) for name in names]
        for created in admin.create_topics(topics).values():
            created.result(60)

    def write(self):
        """A few records to every topic all the time, until told to stop; then what was written is known."""
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0,
                             "reconnect.backoff.max.ms": 1000, "message.timeout.ms": 120_000})
        failed = []

        def report(error, message):
            if error:
                failed.append(error)
            else:
                self.produced[message.topic()].add((message.partition(), message.offset()))

        pause = threading.Event()
        while self.writing:
            for name in self.produced:
                for partition in range(PARTITIONS):
                    producer.produce(name, value=f"{self.sent}", partition=partition, on_delivery=report)
                    self.sent += 1
            producer.poll(0)
            pause.wait(0.1)
        left = producer.flush(60)
        if left or failed:
            raise RuntimeError(f"{left} records left, failed: {failed[:1]}")
        self.written.set()

    def meet(self, place):
        """Waits until every group has come so far, or failed."""
        wait_until("all groups have come so far", lambda: all(g.reached >= place for g in self.groups), 4 * PATIENCE_S)

    def run(self):
        self.create_topics()
        writer = threading.Thread(target=self.write, daemon=True)
        writer.start()
        for group in self.groups:
            group.start()
        self.meet(Group.CRASH)
        self.broker.kill9()
        self.crashed_at = time.time_ns() // 1_000_000
        self.broker.start()
        self.restarted.set()
        self.meet(Group.STOP)
        self.writing = False
        for group in self.groups:
            group.join(2 * PATIENCE_S)


def run_groups(names, tally, **place):
    """The groups of these names, all at once."""
    suite = Suite(names, **place)
    try:
        suite.run()
        for group in suite.groups:
            error = group.error or (None if not group.is_alive() else "it hangs")
            tally.add(f"group {group.group} {group.summary}".strip(), error)
        suite.broker.stop()
        tally.add("the broker of the groups stops cleanly, tripwires at zero")
    except BaseException:
        suite.broker.discard()
        raise
    if any(group.error for group in suite.groups):
        print(f"files of the members: {suite.scratch}", flush=True)
    else:
        shutil.rmtree(suite.scratch)


def main():
    chosen = sys.argv[1:] or [*GROUPS, CHAIN, "tools"]
    tally = Tally()
    started = time.monotonic()
    try:
        names = [name for name in chosen if name != "tools"]
        if names:
            run_groups(names, tally)
        if "tools" in chosen:
            group_tools.run(tally)
    except BaseException as error:
        traceback.print_exc()
        tally.add("the run as a whole", repr(error))
        if not isinstance(error, Exception):
            raise
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

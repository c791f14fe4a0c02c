"""The life of topics under real clients: compacted topics are read by all of them, Kafka's tools and admin clients administer.

    life.py [compaction] [tools] [admins]        (all of them without arguments)

Run it with the Python of tests/.cache/venv.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

from harness import Broker, Tally, java, programs, wait_until
from run import CODECS, READERS, Clients, Tools, has, same

# Looks for something to do all the time.
SETTINGS = [
    "log.retention.check.interval.ms=100", "log.cleaner.backoff.ms=100", "log.segment.delete.delay.ms=0",
    "log.initial.task.delay.ms=100",
]
COMPACT = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "20000",
    "delete.retention.ms": "100",
}
KEYS, ROUNDS = 40, 60
PATIENCE_S = 60


class Life:
    """A broker, its address, and what the suites share."""

    def __init__(self, broker, scratch):
        self.broker = broker
        self.clients = Clients(broker.address, scratch)
        self.tools = Tools(broker.address)
        self.scratch = scratch
        self.admin = AdminClient({"bootstrap.servers": broker.address})

    def create(self, name, config):
        """One topic with one partition."""
        self.admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(PATIENCE_S)

    def write(self, topic, pairs, codec="none"):
        """Keys and values, several to a batch; a value of None deletes."""
        producer = Producer({"bootstrap.servers": self.broker.address, "compression.codec": codec, "acks": "all",
                             "linger.ms": 5, "batch.num.messages": 7})
        for key, value in pairs:
            producer.produce(topic, key=key, value=value, partition=0)
            producer.poll(0)
        if producer.flush(PATIENCE_S):
            raise RuntimeError("not written")

    def read(self, topic):
        """All of a topic as (offset, key, value), read until the position is the end."""
        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": "nobody",
                             "enable.auto.commit": False, "enable.partition.eof": True})
        found, at_end, deadline = [], False, time.monotonic() + PATIENCE_S
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not at_end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"f09: the end of {topic} is not reached after {len(found)} records")
            for message in consumer.consume(1000, timeout=0.5):
                if message.error():
                    at_end = True
                else:
                    found.append((message.offset(), message.key(), message.value()))
        consumer.close()
        return found

    def segments(self, topic):
        """The segment files of a topic's only partition."""
        below = os.path.join(self.broker.data, f"{topic}-0" if self.broker.jars else os.path.join(topic, "0"))
        return sorted(glob.glob(os.path.join(below, "*.log")))


def compaction(life, tally):
    """Each codec: written, compacted, then read by every client, which all see the same."""
    for codec in CODECS:
        topic = f"compacted.{codec}"
        try:
            compacted(life, topic, codec)
            tally.add(f"a topic of {codec} batches is compacted")
        except (RuntimeError, TimeoutError) as error:
            tally.add(f"a topic of {codec} batches is compacted", error)
            continue
        records = life.read(topic)
        expected = b"".join(value + b"\n" for _, _, value in records)
        for reader in READERS:
            tally.add(f"{reader} reads {topic}", read_by(life, reader, topic, len(records), expected))


def compacted(life, topic, codec):
    """Writes and waits until at most the last rounds have more than one record of a key."""
    life.create(topic, COMPACT)
    model = {}
    for turn in range(ROUNDS):
        pairs = [(f"key-{n}", f"{topic} {turn} {n} " + "x" * (n % 50)) for n in range(KEYS)]
        model.update(pairs)
        life.write(topic, pairs, codec)
    wait_until(f"{topic} is compacted", lambda: len(life.read(topic)) < KEYS * 20, PATIENCE_S)
    table = {key.decode(): value.decode() for _, key, value in life.read(topic)}
    if table != model:
        raise RuntimeError("another value of some key")


def read_by(life, reader, topic, count, expected):
    """What went wrong when a client read the topic, if anything."""
    out = os.path.join(life.scratch, f"{topic}.{reader}")
    outcome = life.clients.one(reader, "read", topic, "0", "0", str(count), out)
    if outcome is None:
        with open(out, "rb") as file:
            outcome = None if file.read() == expected else "other records than were left"
    return outcome


def tools(life, tally):
    """Kafka's tools; each step says what it expects to see."""
    tool = life.tools
    life.create("life", {"retention.ms": "-1"})
    life.write("life", [(f"k{n}", f"v{n}") for n in range(100)])
    life.create("life.compacted", COMPACT)
    life.write("life.compacted", [(f"k{n % 3}", "x" * 100) for n in range(1000)])
    wait_until("compaction", lambda: len(life.read("life.compacted")) < 500, PATIENCE_S)
    dir_path = re.escape(os.path.abspath(life.broker.data))
    steps = {
        "kafka-delete-records": lambda: has(delete_records(life, "life", 40), r"partition: life-0\s+low_watermark: 40"),
        "kafka-get-offsets earliest after it": lambda: has(
            tool.run("GetOffsetShell", "--topic", "life", "--time", "earliest"), r"(?m)^life:0:40$"),
        "kafka-delete-records beyond the end": lambda: has(delete_records(life, "life", 101), "OutOfRange"),
        "kafka-delete-records of a compacted topic": lambda: has(
            delete_records(life, "life.compacted", 1), "PolicyViolation"),
        "kafka-delete-records to the end": lambda: has(delete_records(life, "life", -1), "low_watermark: 100"),
        "kafka-console-consumer from the new start": lambda: same(consume_after_delete(life), "after\n"),
        "kafka-log-dirs": lambda: has(
            tool.run("LogDirsCommand", "--describe", "--topic-list", "life.compacted"),
            rf'"logDir":"{dir_path}"', r'"partition":"life.compacted-0","size":[1-9]\d*,"offsetLag":0,"isFuture":false'),
        "kafka-leader-election": lambda: has(
            tool.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", "life", "--partition", "0"),
            r"(?i)valid replica already elected|not needed|already the leader"),
        "kafka-reassign-partitions --list": lambda: has(
            tool.run("reassign.ReassignPartitionsCommand", "--list"), "No partition reassignments found"),
        "kafka-metadata-quorum": lambda: has(quorum(life), r"LeaderId:\s+1", r"CurrentVoters:\s+\["),
        "kafka-dump-log of our files": lambda: [dump(path) for path in life.segments("life.compacted")],
        "kafka-configs of all brokers": lambda: has(
            tool.run("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
            r"log\.retention\.hours=168", r"log\.cleaner\.backoff\.ms=100"),
    }
    for name, step in steps.items():
        try:
            step()
            tally.add(name)
        except (RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
            tally.add(name, error)


def delete_records(life, topic, upto):
    """kafka-delete-records of one partition."""
    path = os.path.join(life.scratch, "delete.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": upto}]}, file)
    return life.tools.run("DeleteRecordsCommand", "--offset-json-file", path)


def consume_after_delete(life):
    life.write("life", [("k", "after")])
    return life.tools.run("consumer.ConsoleConsumer", "--topic", "life", "--partition", "0", "--offset", "earliest",
                          "--max-messages", "1", "--timeout-ms", "60000")


def quorum(life):
    return life.tools.run("MetadataQuorumCommand", "describe", "--status")


def dump(path):
    """Kafka's own reader of log files finds nothing wrong in ours."""
    with tempfile.TemporaryDirectory() as folder:
        # Kafka's names are the base offset alone.
        name = os.path.join(folder, os.path.basename(path).split("-")[-1])
        shutil.copy(path, name)
        command = [*java("org.apache.kafka.tools.DumpLogSegments"), "--files", name, "--deep-iteration",
                   "--print-data-log"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or "isvalid: false" in done.stdout or "Found" in done.stderr:
        raise RuntimeError(f"{path}: exit {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    has(done.stdout, r"baseOffset: \d+", r"isvalid: true")


def admins(life, tally):
    """The admin clients of librdkafka, kafka-python and franz-go."""
    life.create("admins", {"retention.ms": "-1"})
    life.write("admins", [(f"k{n}", f"v{n}") for n in range(20)])
    python = KafkaAdminClient(bootstrap_servers=life.broker.address)
    steps = {
        "librdkafka deletes records": lambda: equal(
            life.admin.delete_records([TopicPartition("admins", 0, 5)])[TopicPartition("admins", 0)]
            .result(PATIENCE_S).low_watermark, 5),
        "librdkafka lists the earliest offset": lambda: equal(
            life.admin.list_offsets({TopicPartition("admins", 0): OffsetSpec.earliest()})[TopicPartition("admins", 0)]
            .result(PATIENCE_S).offset, 5),
        "librdkafka describes the configuration": lambda: equal(described(life, "cleanup.policy"), "delete"),
        "kafka-python deletes records": lambda: equal(
            python.delete_records({PythonPartition("admins", 0): 9})[PythonPartition("admins", 0)]["low_watermark"], 9),
        "kafka-python describes log dirs": lambda: has(str(python.describe_log_dirs()), "admins"),
        "kafka-python lists partition reassignments": lambda: python.list_partition_reassignments()
        if hasattr(python, "list_partition_reassignments") else None,
        "franz-go creates, configures, grows, trims, describes and deletes a topic": lambda: equal(
            franz_administers(life), {
                "created": 1, "written": 10, "retention": "123456789", "deleted up to": 4, "offsets": [4, 10],
                "partitions": 3, "brokers": [1], "gone": ["franz-admins"], "log dirs": True}),
    }
    for name, step in steps.items():
        try:
            step()
            tally.add(name)
        except Exception as error:  # Clients raise what they like.
            tally.add(name, repr(error))
    python.close()


def franz_administers(life):
    command = [*programs()["franz-go"], "administer", "--bootstrap", life.broker.address, "--topic", "franz-admins"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 3, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    saw = json.loads(done.stdout)
    # How many bytes ten records take is the client's business.
    return saw | {"log dirs": saw["log dirs"] > 500}


def described(life, key):
    resource = ConfigResource("TOPIC", "admins")
    return life.admin.describe_configs([resource])[resource].result(PATIENCE_S)[key].value


def equal(found, expected):
    if found != expected:
        raise RuntimeError(f"{found!r} instead of {expected!r}")


def main():
    suites = {"compaction": compaction, "tools": tools, "admins": admins}
    scratch = tempfile.mkdtemp(prefix="seawall-life-")
    tally = Tally()
    broker = Broker(SETTINGS)
    try:
        life = Life(broker, scratch)
        for name in sys.argv[1:] or suites:
            suites[name](life, tally)
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

"""Whole applications on the broker: Kafka Connect and Kafka Streams, killed and restarted, as people run them.

    apps.py [connect] [streams] [exactly-once]        (all of them without arguments)
"""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from harness import Broker, Tally, free_port, java, wait_until
from run import Clients

WITHIN_S = 120
WORDS = ["sea", "wall", "tide", "harbour", "lighthouse", "gull", "anchor", "rope"]


class Process:
    """A program that runs beside the tests, with its output in a file."""

    def __init__(self, name, scratch, command):
        self.path = os.path.join(scratch, f"{name}.log")
        self.command = command
        self.process = None
        self.start()

    def start(self):
        with open(self.path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill9()


class Rig:
    """A broker with its clients; everything that was started is ended."""

    def __init__(self, settings=()):
        self.scratch = tempfile.mkdtemp(prefix="seawall-apps-")
        self.broker = Broker(["group.initial.rebalance.delay.ms=0", *settings])
        self.clients = Clients(self.broker.address, self.scratch)
        self.processes = []

    def run(self, name, command):
        self.processes.append(Process(name, self.scratch, command))
        return self.processes[-1]

    def create(self, *topics):
        path = os.path.join(self.scratch, "topics")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{topic}\n" for topic in topics))
        error = self.clients.one("java", "create", path)
        if error:
            raise RuntimeError(error)

    def write(self, topic, lines):
        path = os.path.join(self.scratch, f"lines-{time.monotonic_ns()}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        self.word_count("feed", topic, path)

    def word_count(self, verb, *args):
        command = java("client.WordCount") + [verb, self.broker.address, *args]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{verb}: {done.stderr.decode(errors='replace')[-1000:]}")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes:
            if kind is None:
                process.stop()
            else:
                process.kill9()
                print(f"--- the end of {process.path}\n{process.output()[-3000:]}", flush=True)
        if kind is None:
            self.broker.stop()
            shutil.rmtree(self.scratch)
        else:
            self.broker.discard()


class Worker:
    """A Connect worker and its HTTP interface."""

    def __init__(self, rig):
        self.port = free_port()
        properties = os.path.join(rig.scratch, "worker.properties")
        settings = {
            "bootstrap.servers": rig.broker.address,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "offset.storage.partitions": 3,
            "status.storage.partitions": 2,
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "hybrid_warn",
        }
        with open(properties, "w", encoding="utf-8") as file:
            file.write("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", "connect") + [properties]
        self.process = rig.run("worker", command)

    def ask(self, path, body=None):
        """The answer as JSON; None while the worker is not there or busy with a rebalance."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def until_running(self, *names):
        def running(name):
            status = self.ask(f"/connectors/{name}/status")
            tasks = status["tasks"] if status else []
            return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)
        wait_until(f"{names} run", lambda: all(running(name) for name in names), WITHIN_S)


def connect(tally):
    """A file becomes a topic becomes a file, also when the worker is killed in between."""
    with Rig() as rig:
        worker = Worker(rig)
        wait_until("the worker answers", lambda: worker.ask("/connectors") is not None, WITHIN_S)
        source, sink = os.path.join(rig.scratch, "source"), os.path.join(rig.scratch, "sink")
        first = [f"line {number} of the first half" for number in range(500)]
        second = [f"line {number} of the second half" for number in range(500)]
        append(source, first)
        file = "org.apache.kafka.connect.file.FileStream"
        for name, config in [
            ("from-file", {"connector.class": f"{file}SourceConnector", "file": source, "topic": "lines"}),
            ("to-file", {"connector.class": f"{file}SinkConnector", "file": sink, "topics": "lines"}),
        ]:
            body = {"name": name, "config": {**config, "tasks.max": "1"}}
            wait_until(f"{name} is made", lambda body=body: worker.ask("/connectors", body), WITHIN_S)
        worker.until_running("from-file", "to-file")
        wait_until("the first half is through", lambda: lines_of(sink) == first, WITHIN_S)
        tally.add("connect: a worker with three internal topics copies a file through a topic")
        tally.add("connect: its internal topics are compacted", not_compacted(rig))
        # Let the offsets of source and sink be committed: what is not is done again, as promised.
        wait_until("offsets are committed", lambda: committed(rig, "connect-to-file", "lines") == len(first), WITHIN_S)
        worker.process.kill9()
        append(source, second)
        worker.process.start()
        wait_until("the second half is through", lambda: set(lines_of(sink)) == set(first + second), WITHIN_S)
        tally.add("connect: a killed worker goes on where it was")


def append(path, lines):
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def tool(rig, main, *args):
    command = java(main) + ["--bootstrap-server", rig.broker.address, *args]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False)
    return done.stdout.decode(errors="replace")


def not_compacted(rig):
    for topic in ["connect-configs", "connect-offsets", "connect-status"]:
        told = tool(rig, "org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic)
        if "cleanup.policy=compact" not in told:
            return f"{topic}: {told}"
    return None


def committed(rig, group, topic):
    """The sum of the offsets that a group has committed for a topic."""
    told = tool(rig, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in told.splitlines() if line.startswith(group)]
    return sum(int(row[3]) for row in rows if row[1] == topic and row[3].isdigit())


class Counting:
    """An application that counts words, and what it must have counted in the end."""

    def __init__(self, rig, guarantee, instances, settings=()):
        self.rig = rig
        rig.create("in 3", "out 3")
        command = java("client.WordCount") + ["run", rig.broker.address, "counting", "in", "out", guarantee, *settings]
        self.instances = [rig.run(f"app-{number}", command) for number in range(instances)]
        self.expected = collections.Counter()
        self.lines = 0

    def feed(self, lines):
        """Writes lines of words."""
        fed = []
        for _ in range(lines):
            self.lines += 1
            fed.append(" ".join(WORDS[(self.lines * step) % len(WORDS)] for step in (1, 3, 5, 7)))
        self.rig.write("in", fed)
        for line in fed:
            self.expected.update(line.split(" "))

    def counts(self):
        path = os.path.join(self.rig.scratch, "counts")
        self.rig.word_count("counts", "out", path)
        return {word: int(count) for word, count in (line.split("\t") for line in lines_of(path))}

    def until_all_counted(self):
        """Gives what is wrong in the end: a count that is too high never goes down again."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            counts = self.counts()
            if counts == self.expected:
                return None
            if any(counts.get(word, 0) > count for word, count in self.expected.items()):
                return f"counted twice: {counts}, expected {dict(self.expected)}"
            if time.monotonic() > deadline:
                return f"lost: {counts}, expected {dict(self.expected)}"


def exactly_once(tally):
    """Word count with exactly_once_v2 while broker and application are killed: in the end every count is exact."""
    with Rig() as rig:
        counting = Counting(rig, "exactly_once_v2", 2)
        counting.feed(300)
        tally.add("streams: words are counted exactly once", counting.until_all_counted())
        for round_number in range(2):
            counting.feed(300)
            counting.instances[round_number % 2].kill9()
            counting.feed(300)
            rig.broker.kill9()
            rig.broker.start()
            counting.feed(300)
            counting.instances[round_number % 2].start()
        counting.feed(100)
        error = counting.until_all_counted()
        tally.add(f"streams: {counting.lines} lines, 2 kills of the broker, 2 of the application, every count exact", error)


def streams(tally):
    """The state of an application comes back from a changelog topic that was compacted."""
    with Rig(["log.cleaner.backoff.ms=200"]) as rig:
        quick = ["segment.ms=500", "min.cleanable.dirty.ratio=0.01"]
        counting = Counting(rig, "at_least_once", 1, quick)

        def compacted():
            # Segments end by their age when something is appended.
            counting.feed(50)
            return rig.broker.jars or rig.broker.metric("seawall_compaction_removed_records_total") > 100
        wait_until("the changelog is compacted", compacted, WITHIN_S)
        tally.add("streams: words are counted while their changelog is compacted", counting.until_all_counted())
        # What is committed is not counted again after a kill.
        wait_until("offsets are committed", lambda: committed(rig, "counting", "in") == counting.lines, WITHIN_S)
        counting.instances[0].kill9()
        counting.instances[0].start()
        counting.feed(100)
        tally.add("streams: counts go on after their restore from the changelog", counting.until_all_counted())


SUITES = {"connect": connect, "streams": streams, "exactly-once": exactly_once}


def main():
    tally = Tally()
    for name in sys.argv[1:] or SUITES:
        try:
            SUITES[name](tally)
        except Exception as error:  # a suite that breaks is a failure among others
            tally.add(name, f"{type(error).__name__}: {error}")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

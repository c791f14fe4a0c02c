"""The broker on real NFS, under load, while everything between it and the disk fails: nothing acknowledged is lost, nothing
that was seen changes, and no silly-renamed file keeps the directory of a deleted topic.

    nfs.py BINARY [VERSION]...        versions of NFS: 4.2 4.1 3 if none is named; about eight minutes each
    SEAWALL_NFS_FAULTS=kill           only the faults that this expression finds

Two guests of nfs-lab for each version: the broker on the client's mount, the export on the server. Producer and observer run
here, on the host, so that they outlive both. Run it with the Python of tests/.cache/venv; root is needed.
"""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "lab")
TOPIC, PARTITIONS = "durable", 3
# What is acknowledged before and after each fault.
ENOUGH = 300
# Nothing is acknowledged for this long while a fault lasts. Without one, some hundred are.
WINDOW_S = 5
# A server that comes back has its grace period, and TCP waits as long again as the fault lasted.
PATIENCE_S = 400


def lab(*words, timeout=240, check=True):
    done = subprocess.run([LAB, *words], capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode:
        raise RuntimeError(f"lab {' '.join(words)}: {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout


def wait_until(what, ready, patience=PATIENCE_S):
    deadline = time.monotonic() + patience
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {patience} s: {what}")
        time.sleep(0.2)


class Guests:
    """A client and a server, a forwarded port, and the broker on the client."""

    def __init__(self, binary, version):
        self.name, self.port = f"seawall-nfs{version.replace('.', '')}", free_port()
        os.environ["NFSVERS"] = version
        lab("up", "--pair", "--export-size", "1G", "--name", self.name, timeout=600)
        lab("copy", "--name", self.name, "client", binary, "/usr/bin/seawall")
        self.forwarder = subprocess.Popen([LAB, "forward", "--name", self.name, "client", str(self.port), "9092"],
                                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                          start_new_session=True)
        self.broker()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def client(self, command, check=True):
        return lab("exec", "--name", self.name, "client", "--", command, check=check)

    def server(self, command):
        return lab("exec", "--name", self.name, "server", "--", command)

    def broker_pid(self):
        return self.client("pgrep -x seawall; true").split()

    def boot_id(self, guest):
        return lab("exec", "--name", self.name, guest, "--", "cat /proc/sys/kernel/random/boot_id").strip()

    def broker(self):
        self.client("nohup setsid seawall --data-dir /mnt/nfs/data --listen 0.0.0.0:9092"
                    f" --set advertised.listeners=PLAINTEXT://{self.address}"
                    " --set log.flush.stall.timeout.ms=5000 --set log.segment.delete.delay.ms=0"
                    " </dev/null >>/root/seawall.log 2>&1 &")

    def down(self):
        os.killpg(self.forwarder.pid, signal.SIGTERM)
        lab("down", "--name", self.name, check=False)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def digest(value):
    return hashlib.sha256(value).digest()[:8]


class Load:
    """An idempotent producer that never gives up, and a consumer that never starts again."""

    def __init__(self, address):
        self.address, self.stopping = address, threading.Event()
        self.acknowledged, self.seen, self.wrong = {}, {}, []
        self.threads = [threading.Thread(target=self.produce, daemon=True), threading.Thread(target=self.observe, daemon=True)]
        for thread in self.threads:
            thread.start()

    def produce(self):
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "acks": "all", "linger.ms": 2,
                             "message.timeout.ms": 900_000, "request.timeout.ms": 20_000, "batch.num.messages": 20})
        number = 0
        while not self.stopping.is_set():
            number += 1
            value = f"record {number} ".encode() * 20
            producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self.delivered)
            producer.poll(0)
            while len(producer) > 60:
                producer.poll(0.05)
        if producer.flush(PATIENCE_S):
            self.wrong.append(f"{len(producer)} records were never answered")

    def delivered(self, error, message):
        if error:
            self.wrong.append(f"a producer with 15 minutes of patience was refused: {error}")
        else:
            self.acknowledged[message.partition(), message.offset()] = digest(message.value())

    def observe(self):
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "none", "enable.auto.commit": False,
                             "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not self.stopping.is_set():
            self.look_at(consumer.poll(0.2))
        consumer.close()

    def look_at(self, message):
        if message is None:
            return
        if message.error():
            if message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self.wrong.append(f"the observer was thrown off its place: {message.error()}")
            return
        place = message.partition(), message.offset()
        if self.seen.setdefault(place, digest(message.value())) != digest(message.value()):
            self.wrong.append(f"what was seen at {place} has changed")

    def more(self, count=ENOUGH):
        """Waits until so many more are acknowledged and seen."""
        told, shown = len(self.acknowledged) + count, len(self.seen) + count
        wait_until("acknowledgements", lambda: self.wrong or len(self.acknowledged) >= told)
        wait_until("what was acknowledged is seen", lambda: self.wrong or len(self.seen) >= shown)

    def stops(self, within):
        """Waits for a window in which nothing is acknowledged: the fault has happened, and the broker does not hide it."""
        deadline = time.monotonic() + within
        while True:
            told = len(self.acknowledged)
            time.sleep(WINDOW_S)
            if len(self.acknowledged) == told:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"acknowledgements went on for {within} s of the fault")

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)

    def check(self):
        """Everything acknowledged is at its place, and everything seen is still what it was."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "none", "enable.partition.eof": True,
                             "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        stored, ended, deadline = {}, set(), time.monotonic() + PATIENCE_S
        while len(ended) < PARTITIONS and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                continue
            stored[message.partition(), message.offset()] = digest(message.value())
        consumer.close()
        for what, promised in (("acknowledged", self.acknowledged), ("seen", self.seen)):
            bad = [place for place, value in list(promised.items()) if stored.get(place) != value]
            if bad:
                raise RuntimeError(f"{len(bad)} records that were {what} are gone or changed, the first at {min(bad)}")
        if not self.acknowledged or self.wrong:
            raise RuntimeError("; ".join(self.wrong[:3]) or "nothing was acknowledged")


# Each fault: what begins it, how it is seen that it happened, what ends it.
def lasting(load, seconds):
    """The rest of a fault that stops all acknowledgements."""
    until = time.monotonic() + seconds
    load.stops(seconds - WINDOW_S)
    time.sleep(max(0.0, until - time.monotonic()))


def hang(what):
    def fault(guests, load):
        guests.server(f"nfs-hang {what}")
        try:
            lasting(load, 30)
        finally:
            guests.server("nfs-resume")
    return fault


def cut(seconds):
    def fault(guests, load):
        lab("cut", "--name", guests.name)
        try:
            lasting(load, seconds)
        finally:
            lab("mend", "--name", guests.name)
    return fault


def restart_server(guests, _load):
    # systemd cancels the job at times, when the mount's own request comes in between.
    guests.server("nfs-restart || nfs-restart")


def power(guests, guest):
    before = guests.boot_id(guest)
    lab("power-cut", "--name", guests.name, guest)
    lab("boot", "--name", guests.name, guest)
    if guests.boot_id(guest) == before:
        raise RuntimeError(f"the {guest} did not boot again")


def server_power(guests, _load):
    power(guests, "server")


def client_power(guests, _load):
    power(guests, "client")
    guests.broker()


def kill(guests, _load):
    before = guests.broker_pid()
    guests.client("pkill -9 -x seawall")
    guests.broker()
    wait_until("another broker runs", lambda: guests.broker_pid() and not set(before) & set(guests.broker_pid()), 60)


def full(guests, load):
    guests.server("nfs-fill 0")
    try:
        lasting(load, 20)
    finally:
        guests.server("nfs-unfill")


FAULTS = {
    "the server hangs for 30 s and resumes": hang("net"),
    "the server's disk hangs for 30 s and resumes": hang("disk"),
    "the link is cut for 10 s": cut(10),
    "the broker is killed": kill,
    "the NFS service restarts": restart_server,
    "the export is full for 20 s": full,
    "the server's power is cut": server_power,
    "the client's power is cut": client_power,
    "the link is cut for 120 s": cut(120),
}


def deleted(guests):
    """A topic that is read while it is deleted leaves nothing, least of all a silly-renamed file."""
    admin = AdminClient({"bootstrap.servers": guests.address})
    producer = Producer({"bootstrap.servers": guests.address})
    admin.create_topics([NewTopic("doomed", 2, 1, config={"segment.bytes": "1048576"})])["doomed"].result(60)
    for number in range(4000):
        producer.produce("doomed", b"x" * 1000, partition=number % 2)
        producer.poll(0)
    producer.flush(120)
    consumer = Consumer({"bootstrap.servers": guests.address, "group.id": "none"})
    consumer.assign([TopicPartition("doomed", partition, 0) for partition in range(2)])
    if consumer.poll(60) is None:
        raise RuntimeError("nothing could be read before the deletion")
    admin.delete_topics(["doomed"])["doomed"].result(60)
    # What goes while find walks is no error; a directory that is not there at all is one.
    find = "test -d /mnt/nfs/data && { find /mnt/nfs/data -path '*doomed*' -o -name '.nfs*' -o -path '*trash*' -type f; true; } 2>/dev/null"
    left = []

    def gone():
        left[:] = guests.client(find).split()
        return not left

    try:
        wait_until("its files are gone", gone, 120)
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {left[:5]}") from None
    consumer.close()


def play(binary, version, tally):
    guests = Guests(binary, version)
    try:
        wait_until("the broker answers", lambda: created(guests), 120)
        load = Load(guests.address)
        wanted = [name for name in FAULTS if re.search(os.environ.get("SEAWALL_NFS_FAULTS", ""), name)]
        if not wanted:
            raise RuntimeError("SEAWALL_NFS_FAULTS finds no fault")
        for name in wanted:
            load.more()
            FAULTS[name](guests, load)
            load.more()
            tally(f"{version}: {name}", load.wrong[:1])
        load.end()
        load.check()
        tally(f"{version}: {len(load.acknowledged)} acknowledged and {len(load.seen)} seen records are as they were", [])
        deleted(guests)
        tally(f"{version}: a topic that is read leaves nothing when it is deleted", [])
        guests.client("seawall verify --data-dir /mnt/nfs/data")
        tally(f"{version}: verify finds no damage", [])
    except Exception as error:  # Whatever it is, the guests' log tells more.
        tally(f"{version}: {error}", [str(error)])
        print(guests.client("tail -n 40 /root/seawall.log", check=False))
    finally:
        guests.down()


def created(guests):
    admin = AdminClient({"bootstrap.servers": guests.address})
    wanted = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": "1048576"})
    try:
        admin.create_topics([wanted], request_timeout=20)[TOPIC].result(30)
        return True
    except Exception as error:  # The client raises what it likes until the broker answers.
        return "TOPIC_ALREADY_EXISTS" in str(error)


def main():
    counts = {True: 0, False: 0}

    def tally(name, wrong):
        counts[not wrong] += 1
        print(f"{'FAIL' if wrong else 'ok  '} NFS {name}{': ' + wrong[0] if wrong else ''}", flush=True)

    for version in sys.argv[2:] or ["4.2", "4.1", "3"]:
        play(os.path.abspath(sys.argv[1]), version, tally)
    print(f"\n{counts[True]} passed, {counts[False]} failed")
    sys.exit(1 if counts[False] or not counts[True] else 0)


if __name__ == "__main__":
    main()

"""The corpus run: real text goes in through one client, the broker is killed again and again, it comes out of another.

    run.py          one pair of clients, 4 kills
    run.py --all    more pairs, 12 kills each

What came out must be what went in, byte for byte and in order, and the log must hold nothing else: an idempotent
producer's retry of a batch that had reached the disk is not stored twice.
"""

import os
import shutil
import struct
import subprocess
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "clients"))
sys.path.insert(0, HERE)

from assemble import assemble
from harness import Broker, Tally, programs, wait_until

WITHIN_S = 1200
# (writer, codec, reader)
BOUNDED = [("rdkafka", "zstd", "franz-go")]
FULL = BOUNDED + [("java", "lz4", "rdkafka"), ("franz-go", "snappy", "java"), ("confluent", "none", "kcat")]


def end_offset(port, topic):
    """The end of partition 0 by a raw ListOffsets v1, or -1 while nobody answers."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">ii", -1, 1) + name + struct.pack(">iiq", 1, 0, -1)
    request = struct.pack(">hhih", 2, 1, 1, -1) + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            raw.sendall(struct.pack(">i", len(request)) + request)
            stream = raw.makefile("rb")
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
            error, _, offset = struct.unpack(">hqq", answer[-18:])
            return offset if error == 0 else -1
    except (OSError, struct.error):
        return -1


def options(job, words):
    """A command line from a job's words."""
    names = {"write": ["topic", "codec", "acks", "file"], "read": ["topic", "partition", "offset", "count", "out"]}[job]
    return [word for name, value in zip(names, words) for word in ("--" + name, value)]


class Run:
    """One corpus through one pair of clients."""

    def __init__(self, pair, corpus, lines, scratch):
        self.writer, self.codec, self.reader = pair
        self.corpus, self.lines, self.scratch = corpus, lines, scratch
        self.broker = Broker()

    def client(self, name, verb, *words, **more):
        command = [*programs()[name], verb, "--bootstrap", self.broker.address, *options(verb, words)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)

    def write_under_kills(self, kills):
        """Writes the corpus; kills the broker whenever another part of it is in."""
        log = open(os.path.join(self.scratch, "writer.log"), "wb")
        writer = self.client(self.writer, "write", "corpus", self.codec, "idem", self.corpus, stdout=log, stderr=log)
        try:
            for kill in range(1, kills + 1):
                mark = self.lines * kill // (kills + 1)
                wait_until(f"{mark} lines are in", lambda: self.reached(writer, mark), WITHIN_S)
                self.broker.kill9()
                self.broker.start()
            status = writer.wait(WITHIN_S)
        finally:
            writer.kill()
            log.close()
        if status != 0:
            with open(log.name, encoding="utf-8", errors="replace") as file:
                raise RuntimeError(f"the writer ended with {status}: {file.read()[-1000:]}")

    def reached(self, writer, mark):
        if writer.poll() is not None:
            raise RuntimeError(f"the writer ended with {writer.returncode} before {mark} lines were in")
        return end_offset(self.broker.port, "corpus") >= mark

    def read_back(self):
        """Reads everything after one more kill, and compares."""
        self.broker.kill9()
        self.broker.start()
        end = end_offset(self.broker.port, "corpus")
        if end != self.lines:
            raise RuntimeError(f"log end {end}, expected {self.lines}")
        out = os.path.join(self.scratch, "out")
        reader = self.client(self.reader, "read", "corpus", "0", "0", str(self.lines), out)
        if reader.wait(WITHIN_S) != 0:
            raise RuntimeError(f"the reader ended with {reader.returncode}")
        compared = subprocess.run(["cmp", self.corpus, out], capture_output=True, text=True, check=False)
        if compared.returncode != 0:
            raise RuntimeError(compared.stdout + compared.stderr)


def create(broker, scratch):
    """One partition, since order is promised within one."""
    topics, jobs = os.path.join(scratch, "topics"), os.path.join(scratch, "create")
    with open(topics, "w", encoding="utf-8") as file:
        file.write("corpus 1\n")
    with open(jobs, "w", encoding="utf-8") as file:
        file.write(f"create\t{topics}\n")
    command = [*programs()["java"], "jobs", "--bootstrap", broker.address, "--file", jobs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("ok"):
        raise RuntimeError(f"create: {done.stdout}{done.stderr}")


def main():
    full = "--all" in sys.argv
    kills = 12 if full else 4
    scratch = tempfile.mkdtemp(prefix="seawall-corpus-")
    corpus = os.path.join(scratch, "corpus")
    size, lines, digest = assemble(corpus)
    print(f"corpus: {size} bytes, {lines} lines, sha256 {digest}", flush=True)
    tally = Tally()
    for pair in FULL if full else BOUNDED:
        name = f"{size} bytes by {pair[0]} ({pair[1]}), {kills} kills, back by {pair[2]}"
        started = time.monotonic()
        run = Run(pair, corpus, lines, scratch)
        try:
            create(run.broker, scratch)
            run.write_under_kills(kills)
            run.read_back()
            run.broker.stop()
            tally.add(f"{name}: byte-identical and in order, {time.monotonic() - started:.0f} s")
        except Exception as error:  # whatever it was, this pair failed
            run.broker.discard()
            tally.add(name, error)
    shutil.rmtree(scratch)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

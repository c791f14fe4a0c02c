#!/usr/bin/env python3
"""How large the binary and the packages are, how long a start takes, what an idle broker holds in memory and uses of a core,
and what a scrape of /metrics costs, with no, 1,000 and 10,000 partitions that each have a record.

    benches/start.py [BINARY]           needs kcat; prints two tables in Markdown; about five minutes

Times of a start are those of the clock, from the call to the first answer; those of the broker at rest and of a scrape are
times of the processor, which others that run beside it change less.
"""
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent.parent
BINARY = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release/seawall")
# ApiVersions version 0, without a client id: the first thing that every client asks.
HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)
DEADLINE = 120.0
# What is waited for after a start before the broker counts as idle: a checkpoint is written 30 s after the last record.
REST_S, IDLE_S, SCRAPES = 40, 30, 50
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, until):
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=until - time.monotonic()) as s:
                s.sendall(HELLO)
                if s.recv(4):
                    return
        except OSError:
            time.sleep(0.001)
    raise SystemExit("the broker did not answer in time")


class Broker:
    def __init__(self, data, *more):
        self.port, self.admin = free_port(), free_port()
        settings = [f"admin.listener=127.0.0.1:{self.admin}", "num.partitions=1000", "log.retention.ms=-1", *more]
        words = [w for s in settings for w in ("--set", s)]
        begun = time.monotonic()
        self.process = subprocess.Popen(
            [BINARY, "--data-dir", data, "--listen", f"127.0.0.1:{self.port}", *words], stderr=subprocess.DEVNULL
        )
        answers(self.port, begun + DEADLINE)
        self.start_ms = (time.monotonic() - begun) * 1000

    def memory_mib(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def processor_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def idle_percent(self):
        """What it uses of one core while nobody asks anything."""
        time.sleep(REST_S)
        before, begun = self.processor_s(), time.monotonic()
        time.sleep(IDLE_S)
        return (self.processor_s() - before) / (time.monotonic() - begun) * 100

    def scrape(self):
        """The size of the page in bytes, and what one costs of a core."""
        page = b""
        before = self.processor_s()
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=DEADLINE) as answer:
                page = answer.read()
        return len(page), (self.processor_s() - before) / SCRAPES * 1000

    def end(self, sig):
        self.process.send_signal(sig)
        self.process.wait(DEADLINE)


def fill(broker, topics):
    """A record in every partition of a thousand-partition topic: many more records than partitions, spread at random."""
    for number in range(topics):
        records = "".join(f"{n}\n" for n in range(12_000))
        subprocess.run(
            ["kcat", "-P", "-b", f"127.0.0.1:{broker.port}", "-t", f"t{number}", "-X", "acks=1", "-X", "sticky.partitioning.linger.ms=0",
             "-X", "batch.num.messages=1", "-X", "linger.ms=0"],
            input=records, text=True, check=True, timeout=DEADLINE,
        )


def measure(topics):
    data = tempfile.mkdtemp(prefix="seawall-start-")
    try:
        broker = Broker(data)
        fill(broker, topics)
        logs = sum(1 for _ in pathlib.Path(data).glob("t*/*/*.log"))
        # Nothing has synced what was acknowledged with acks=1: the start does, file by file.
        broker.end(signal.SIGKILL)
        unsynced = Broker(data)
        unsynced.end(signal.SIGTERM)
        clean = Broker(data)
        memory, idle = clean.memory_mib(), clean.idle_percent()
        clean.end(signal.SIGKILL)
        # Whatever is left out or not: every partition is told one by one, and then none is.
        killed = Broker(data, "metrics.series.max=1000000")
        told = killed.scrape()
        killed.end(signal.SIGTERM)
        short = Broker(data, "metrics.series.max=0")
        left_out = short.scrape()
        short.end(signal.SIGTERM)
        return (logs, f"{clean.start_ms:.0f} ms", f"{killed.start_ms:.0f} ms", f"{unsynced.start_ms:.0f} ms", f"{memory:.0f} MiB", f"{idle:.2f} %"), (told, left_out)
    finally:
        shutil.rmtree(data)


def sizes():
    print(f"binary, with line tables: {os.path.getsize(BINARY) / 2**20:.1f} MiB")
    for file in sorted((HERE / "packaging/out").glob("seawall*")) + [HERE / "packaging/.stage/seawall"]:
        if file.exists():
            print(f"{file.relative_to(HERE)}: {file.stat().st_size / 2**20:.1f} MiB")


def main():
    sizes()
    print("\n| partitions | files with records | start after a clean stop | start after kill -9, idle | start after kill -9, just written | resident, idle | of a core, idle |\n|---|---|---|---|---|---|---|")
    scrapes = []
    for topics in (0, 1, 10):
        row, scrape = measure(topics)
        print(f"| {topics * 1000:,} | {' | '.join(map(str, row))} |", flush=True)
        scrapes.append((topics, scrape))
    print("\n| partitions | page | processor time of a scrape | page without them | processor time |\n|---|---|---|---|---|")
    for topics, ((size, ms), (short, short_ms)) in scrapes:
        print(f"| {topics * 1000:,} | {size / 1e6:.2f} MB | {ms:.1f} ms | {short / 1e6:.2f} MB | {short_ms:.1f} ms |")


main()

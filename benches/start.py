#!/usr/bin/env python3
"""How large the binary and the packages are, how long a start takes, and what an idle broker holds in memory, with no, 1,000
and 10,000 partitions that each have a record.

    benches/start.py [BINARY]           needs kcat; prints a table in Markdown
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

HERE = pathlib.Path(__file__).resolve().parent.parent
BINARY = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release/seawall")
# ApiVersions version 0, without a client id: the first thing that every client asks.
HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)
DEADLINE = 120.0


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
    def __init__(self, data):
        self.port = free_port()
        settings = ["admin.listener=", "num.partitions=1000", "log.retention.ms=-1"]
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
        broker.end(signal.SIGTERM)
        clean = Broker(data)
        memory = clean.memory_mib()
        clean.end(signal.SIGKILL)
        killed = Broker(data)
        killed.end(signal.SIGTERM)
        return logs, clean.start_ms, killed.start_ms, memory
    finally:
        shutil.rmtree(data)


def sizes():
    print(f"binary, with line tables: {os.path.getsize(BINARY) / 2**20:.1f} MiB")
    for file in sorted((HERE / "packaging/out").glob("seawall*")) + [HERE / "packaging/.stage/seawall"]:
        if file.exists():
            print(f"{file.relative_to(HERE)}: {file.stat().st_size / 2**20:.1f} MiB")


def main():
    sizes()
    print("\n| partitions | files with records | start after a clean stop | start after kill -9 | resident, idle |\n|---|---|---|---|---|")
    for topics in (0, 1, 10):
        logs, clean, killed, memory = measure(topics)
        print(f"| {topics * 1000:,} | {logs:,} | {clean:.0f} ms | {killed:.0f} ms | {memory:.0f} MiB |", flush=True)


main()

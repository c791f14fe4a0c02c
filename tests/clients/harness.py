"""What the suites of real clients share: the broker as a process, and how each client program is started.

The same suites run against Apache Kafka with SEAWALL_TEST_KAFKA=<directory with its jars>, which is how they were checked.
"""

import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(ROOT, "tests", ".cache")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
START_WITHIN_S = 60
# JVMs that live for a second: no second compiler, one collector thread.
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


def free_port():
    """A port below the ephemeral range that nobody listens on, so that it outlives a restart of the broker."""
    for port in range(10_000 + os.getpid() % 9_000 * 2, 32_000):
        if port in free_port.given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free_port.given.add(port)
        return port
    raise RuntimeError("no free port")


free_port.given = set()


def wait_until(what, condition, within=START_WITHIN_S):
    """Waits for a condition with a deadline."""
    deadline = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within} s: {what}")
        pause.wait(0.02)


class Broker:
    """The broker under test, or a KRaft node in its place."""

    def __init__(self, settings=()):
        self.scratch = tempfile.mkdtemp(prefix="seawall-clients-")
        self.data = os.path.join(self.scratch, "data")
        self.port, self.admin = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.settings = list(settings)
        self.jars = os.environ.get("SEAWALL_TEST_KAFKA")
        self.process = None
        self.start()

    def start(self):
        log = open(os.path.join(self.scratch, "broker.log"), "ab")
        command = self._kafka() if self.jars else self._seawall()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        wait_until("the broker answers", self._answers)

    def _seawall(self):
        binary = os.environ.get("SEAWALL_BIN", os.path.join(TARGET, "release", "seawall"))
        sets = [f"admin.listener=127.0.0.1:{self.admin}", *self.settings]
        return [binary, "--data-dir", self.data, "--listen", self.address] + [
            word for setting in sets for word in ("--set", setting)
        ]

    def _kafka(self):
        java = [*JAVA, "-Xmx1g", "-cp", f"{self.jars}/*"]
        properties = os.path.join(self.scratch, "server.properties")
        with open(properties, "w", encoding="utf-8") as file:
            file.write("\n".join([
                "process.roles=broker,controller", "node.id=1", "controller.listener.names=CONTROLLER",
                f"controller.quorum.bootstrap.servers=127.0.0.1:{self.admin}",
                f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.admin}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                f"log.dirs={self.data}", "offsets.topic.replication.factor=1", *self.settings]))
        if not os.path.exists(os.path.join(self.data, "meta.properties")):
            subprocess.run([*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qg",
                            "-c", properties], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [*java, "kafka.Kafka", properties]

    def _answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the broker exited with {self.process.returncode}:\n{self.log()}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as raw:
                # ApiVersions v0, correlation id 7, no client id.
                raw.sendall(bytes.fromhex("0000000a" "0012" "0000" "00000007" "ffff"))
                return raw.recv(8)[4:8] == bytes.fromhex("00000007")
        except OSError:
            return False

    def log(self):
        with open(os.path.join(self.scratch, "broker.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-8000:]

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Checks the tripwires, sends SIGTERM, expects exit status 0, removes the data."""
        if not self.jars:
            self.assert_tripwires_are_zero()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(START_WITHIN_S)
        if status not in ((0, 143) if self.jars else (0,)):
            raise RuntimeError(f"the broker stopped with {status}:\n{self.log()}")
        shutil.rmtree(self.scratch)

    def discard(self):
        """Ends the broker whatever its state and keeps its data and log for a look."""
        if self.process.poll() is None:
            self.kill9()
        print(f"data and log of the broker: {self.scratch}", flush=True)

    def metrics(self):
        """The lines of /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as page:
            return page.read().decode().splitlines()

    def metric(self, name):
        """The value of a metric without labels."""
        return next(float(line.split(" ")[1]) for line in self.metrics() if line.startswith(f"{name} "))

    def assert_tripwires_are_zero(self):
        """Nobody decoded a record on the hot path."""
        lines = self.metrics()
        tripwires = [line.rsplit(" ", 1) for line in lines if line.startswith("seawall_tripwire_")]
        tripwires = [(name, value) for name, value in tripwires if name.split("{")[0].endswith("_total")]
        if not tripwires or any(float(value) for _, value in tripwires):
            raise RuntimeError(f"tripwires: {tripwires or 'none in /metrics'}")


def java(main, module="java"):
    """The command of a Java program with everything Maven fetched for a module on its class path."""
    jars = os.path.join(CACHE, module, "lib", "*")
    if not glob.glob(jars):
        raise RuntimeError(f"the Java module {module} is not built; tests/run builds it")
    return [*JAVA, "-cp", f"{os.path.join(CACHE, module, 'classes')}:{jars}", main]


def programs():
    """How each client program is started; the verb and its options follow."""
    python = os.path.join(CACHE, "venv", "bin", "python")
    go = os.path.join(CACHE, "go", "client")
    return {
        "java": java("client.Client"),
        "console": java("client.Tools"),
        "kafka-python": [python, os.path.join(HERE, "python", "kafka_python.py")],
        "confluent": [python, os.path.join(HERE, "python", "confluent.py")],
        "franz-go": [go, "franz-go"],
        "kafka-go": [go, "kafka-go"],
        "kafkajs": ["node", os.path.join(HERE, "node", "client.js")],
        "kcat": [sys.executable, os.path.join(HERE, "python", "kcat.py")],
        "rdkafka": [os.path.join(TARGET, "clients-rust", "release", "seawall-client-rust")],
    }


class Tally:
    """Prints a line per case and the closing line."""

    def __init__(self):
        self.passed, self.failed = 0, 0
        self.lock = threading.Lock()

    def add(self, name, error=None):
        with self.lock:
            self.passed += error is None
            self.failed += error is not None
            print(f"ok    {name}" if error is None else f"FAIL  {name}: {error}", flush=True)

    def close(self):
        """The closing line; gives the exit status."""
        print(f"\n{self.passed} passed, {self.failed} failed", flush=True)
        return 0 if self.passed and not self.failed else 1

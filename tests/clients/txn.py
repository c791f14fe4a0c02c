"""Transactions of real clients: what was committed is there whole and once, what was aborted is not, whoever is killed.

    txn.py [steady] [kills] [copy] [tools]        (all of them without arguments)
"""

import collections
import os
import subprocess
import sys
import tempfile
import threading

from harness import CACHE, HERE, JAVA, Broker, Tally, java
from run import Clients

PARTITIONS = 4
STEADY_S = 5
FULL = "SEAWALL_TEST_FULL" in os.environ
KILLS_S = 300 if FULL else 25
WITHIN_S = 600


def bank(client):
    """The command that makes transfers by a client; bootstrap, topic, id, seconds and the file of outcomes follow."""
    libs = os.path.join(CACHE, "java")
    old = f"{libs}/classes:{libs}/lib-v1/*:{libs}/lib/slf4j-api-1.7.36.jar:{libs}/lib/slf4j-nop-1.7.36.jar"
    return {
        "java": [*java("client.Bank"), "transfer"],
        "java-v1": [*JAVA, "-cp", old, "client.Bank", "transfer"],
        "confluent": [os.path.join(CACHE, "venv", "bin", "python"), os.path.join(HERE, "python", "bank.py"), "transfer"],
    }[client]


def transfer(client, broker, topic, name, seconds, out):
    """Starts a client that makes transfers."""
    if client in ("franz-go", "sarama"):
        command = [os.path.join(CACHE, "go", "client"), client, "transfer", "--bootstrap", broker.address, "--topic", topic,
                   "--id", name, "--seconds", str(seconds), "--partitions", str(PARTITIONS), "--out", out]
    else:
        command = [*bank(client), broker.address, topic, name, str(seconds), out]
    with open(out + ".errors", "wb") as errors:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)


ALL = ["java", "java-v1", "confluent", "franz-go", "sarama"]


def outcomes(path):
    """What a client believes: (outcome, key) in order."""
    with open(path, encoding="utf-8") as file:
        return [tuple(line.split("\t")) for line in file.read().splitlines()]


def audit(broker, topic, out):
    """What a reader of committed records sees: amounts by key."""
    subprocess.run([*java("client.Bank"), "audit", broker.address, topic, out], check=True, timeout=WITHIN_S)
    seen = collections.defaultdict(list)
    with open(out, encoding="utf-8") as file:
        for line in file.read().splitlines():
            key, _partition, amount = line.split("\t")
            seen[key].append(int(amount))
    return seen


def verdict(seen, told):
    """None, or what is wrong with what was seen."""
    for outcome, key in told:
        legs = sorted(seen.get(key, []))
        whole = len(legs) == 2 and sum(legs) == 0
        if outcome == "committed" and not whole:
            return f"{key} was committed, seen: {legs}"
        if outcome == "aborted" and legs:
            return f"{key} was aborted, seen: {legs}"
        if legs and not whole:
            return f"{key} is {outcome}, half of it or more than it was seen: {legs}"
    strangers = set(seen) - {key for _, key in told}
    if strangers:
        return f"nobody made {sorted(strangers)[:3]}"
    return None if any(outcome == "committed" for outcome, _ in told) else "nothing was committed"


class Rig:
    """A broker, a scratch directory and a topic of accounts."""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix="seawall-txn-")
        self.broker = Broker(["group.initial.rebalance.delay.ms=0"])
        self.clients = Clients(self.broker.address, self.scratch)

    def create(self, *topics):
        path = os.path.join(self.scratch, "topics")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{topic} {PARTITIONS}\n" for topic in topics))
        error = self.clients.one("java", "create", path)
        if error:
            raise RuntimeError(error)

    def path(self, name):
        return os.path.join(self.scratch, name)


def errors_of(path):
    with open(path + ".errors", encoding="utf-8", errors="replace") as file:
        return file.read()[-600:]


def steady(rig, tally):
    """Each client by itself, nobody is killed: nothing may be unknown."""
    for client in ALL:
        topic = f"steady.{client}"
        rig.create(topic)
        out = rig.path(topic)
        process = transfer(client, rig.broker, topic, client, STEADY_S, out)
        status = process.wait(WITHIN_S)
        told = outcomes(out)
        error = verdict(audit(rig.broker, topic, out + ".seen"), told)
        if status or any(outcome == "unknown" for outcome, _ in told):
            error = f"exit {status}: {errors_of(out)}"
        counts = collections.Counter(outcome for outcome, _ in told)
        tally.add(f"{client}: {counts['committed']} committed, {counts['aborted']} aborted", error)


def kills(rig, tally):
    """All clients at once, into the same accounts, while the broker is killed again and again and is looked at in between."""
    rig.create("kills")
    running = {client: transfer(client, rig.broker, "kills", f"k.{client}", KILLS_S, rig.path(f"kills.{client}"))
               for client in ALL}
    pause, killed, halves = threading.Event(), 0, None
    while any(process.poll() is None for process in running.values()):
        pause.wait(2.5)
        rig.broker.kill9()
        killed += 1
        rig.broker.start()
        if killed % 4 == 0:
            halves = halves or half_seen(rig, f"look.{killed}")
    told = []
    for client, process in running.items():
        out = rig.path(f"kills.{client}")
        status = process.wait(WITHIN_S)
        mine = outcomes(out)
        told += mine
        counts = collections.Counter(outcome for outcome, _ in mine)
        error = f"exit {status}: {errors_of(out)}" if status else None
        tally.add(f"{client} lives through {killed} kills of the broker: {dict(counts)}", error)
    tally.add("no aborted transfer is ever seen", halves)
    tally.add("every transfer is there whole or not at all", verdict(audit(rig.broker, "kills", rig.path("kills.seen")), told))


def half_seen(rig, name):
    """A reader in the middle of everything: no key more than twice, and none that its client has aborted."""
    seen = audit(rig.broker, "kills", rig.path(name))
    told = [row for client in ALL for row in outcomes(rig.path(f"kills.{client}"))]
    for key, legs in seen.items():
        if len(legs) > 2:
            return f"{key} was seen {len(legs)} times"
    for outcome, key in told:
        if outcome == "aborted" and key in seen:
            return f"{key} was aborted and seen"
    return None


def copy(rig, tally):
    """Consume, transform, produce: the copy is exact though broker and copier are killed."""
    rig.create("copy.in", "copy.out")
    out = rig.path("copy.in")
    transfer("java", rig.broker, "copy.in", "source", STEADY_S, out).wait(WITHIN_S)
    command = [*java("client.Bank"), "copy", rig.broker.address, "copy.in", "copy.out", "copiers", str(WITHIN_S)]
    errors = open(rig.path("copy.errors"), "wb")
    start = lambda: subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    wanted = audit(rig.broker, "copy.in", rig.path("copy.wanted"))
    copier, pause = start(), threading.Event()
    for round_ in range(12 if FULL else 5):
        pause.wait(2.0)
        if round_ % 2:
            copier.kill()
            copier.wait()
            copier = start()
        else:
            rig.broker.kill9()
            rig.broker.start()
    seen, tries = {}, 0
    while len(seen) < len(wanted) and tries < 40:
        pause.wait(1.0)
        seen = audit(rig.broker, "copy.out", rig.path("copy.seen"))
        tries += 1
    copier.kill()
    copier.wait()
    errors.close()
    different = [key for key in set(wanted) | set(seen) if sorted(wanted.get(key, [])) != sorted(seen.get(key, []))]
    error = f"{len(different)} of {len(wanted)} differ: {different[:3]}" if different else None
    tally.add(f"{len(wanted)} transfers are copied once each", error)


def tools(rig, tally):
    """kafka-transactions: list, describe, producers, and nothing that hangs."""
    rig.create("tools")
    transfer("java", rig.broker, "tools", "tooled", 2, rig.path("tools")).wait(WITHIN_S)

    def run(*words):
        command = [*java("org.apache.kafka.tools.TransactionsCommand"), "--bootstrap-server", rig.broker.address, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        return done.stdout + done.stderr

    listed = run("list")
    tally.add("kafka-transactions list", None if "tooled" in listed and "Complete" in listed else listed)
    described = run("describe", "--transactional-id", "tooled")
    tally.add("kafka-transactions describe", None if "20000" in described else described)
    producers = run("describe-producers", "--topic", "tools", "--partition", "0")
    tally.add("kafka-transactions describe-producers", None if "None" in producers and "ProducerEpoch" in producers else producers)
    hanging = run("find-hanging", "--broker-id", "1")
    rows = [line for line in hanging.splitlines() if line.startswith("tools") or "Exception" in line]
    tally.add("kafka-transactions find-hanging", hanging if rows else None)
    none = run("list", "--duration-filter", "100000000")
    tally.add("kafka-transactions list filters", none if "tooled" in none else None)


SUITES = {"steady": steady, "kills": kills, "copy": copy, "tools": tools}


def main():
    chosen = sys.argv[1:] or list(SUITES)
    tally = Tally()
    for name in chosen:
        rig = Rig()
        try:
            SUITES[name](rig, tally)
            rig.broker.stop()
        except Exception as error:  # A suite that breaks is one failure; the others still run.
            tally.add(name, f"{type(error).__name__}: {error}")
            rig.broker.discard()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Who may do what and how much: Kafka's own kafka-acls, kafka-configs and kafka-producer-perf-test.

Without a login everybody is User:ANONYMOUS; rules about alice and bob are made and read, those about ANONYMOUS are felt.
Run against Apache Kafka with SEAWALL_TEST_KAFKA=<directory with its jars>.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import Broker, Tally, java

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = [f"authorizer.class.name={AUTHORIZER}", "allow.everyone.if.no.acl.found=true"]
WITHIN_S = 120
RATE = 200_000


class Tools:
    """Kafka's tools against one broker, each in a JVM of its own."""

    def __init__(self, broker):
        self.broker = broker

    def _run(self, tool, *words):
        command = [*java(f"org.apache.kafka.tools.{tool}"), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WITHIN_S,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def _bootstrapped(self, tool, *words):
        status, text = self._run(tool, "--bootstrap-server", self.broker.address, *words)
        if status != 0 or "Error" in text:
            raise RuntimeError(f"exit {status}: {text.strip()[-600:]}")
        return text

    def acls(self, *words):
        return self._bootstrapped("AclCommand", *words)

    def configs(self, *words):
        return self._bootstrapped("ConfigCommand", *words)

    def topic(self, name):
        self._bootstrapped("TopicCommand", "--create", "--topic", name, "--partitions", "1")

    def perf(self, topic, records, size, client="perf"):
        """kafka-producer-perf-test; what it printed, with its metrics."""
        # One batch in flight is small against the rate, so that the average shows it.
        config = [f"bootstrap.servers={self.broker.address}", f"client.id={client}", "batch.size=16384", "acks=all",
                  "enable.idempotence=false", "delivery.timeout.ms=30000", "request.timeout.ms=20000"]
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.write("\n".join(config))
            file.flush()
            return self._run("ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size",
                             str(size), "--throughput", "-1", "--command-config", file.name, "--print-metrics")


def expect(holds, text):
    if not holds:
        raise RuntimeError(f"not as expected: {text.strip()[-800:]}")


def rule(text, principal, operation, permission="ALLOW", host="*"):
    """Whether a listing has that rule."""
    line = f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"
    return line in text


class Steps:
    def __init__(self, broker):
        self.broker, self.tools = broker, Tools(broker)

    def steps(self):
        return {
            "acls --add of a topic, a prefix and a group": self.add,
            "acls --list by any, match and prefixed pattern": self.list,
            "acls --producer, --consumer and --idempotent": self.convenience,
            "acls --add of a delegation token is refused clearly": self.token,
            "acls: a denied producer is told so, and goes on when the rule is gone": self.denied,
            "acls --remove by filter": self.remove,
            "configs of clients: add, describe, delete": self.clients,
            "configs of users and of users with clients: add": self.users,
            "configs of ips: add, describe, delete": self.ips,
            "perf-test without a limit is not throttled": self.perf_free,
            "perf-test under a producer_byte_rate keeps it and is throttled": self.perf_limited,
            "perf-test under a request_percentage is throttled": self.perf_request,
            "rules and limits are there after a kill": self.restart,
        }

    def add(self):
        one = self.tools.acls("--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "Describe",
                              "--topic", "ledger", "--group", "books")
        expect(rule(one, "User:alice", "READ") and rule(one, "User:alice", "DESCRIBE"), one)
        text = self.tools.acls("--add", "--allow-principal", "User:bob", "--deny-principal", "User:eve", "--operation",
                               "Write", "--topic", "led", "--resource-pattern-type", "prefixed", "--allow-host", "10.0.0.7")
        expect(rule(text, "User:bob", "WRITE", host="10.0.0.7") and rule(text, "User:eve", "WRITE", "DENY"), text)

    def list(self):
        everything = self.tools.acls("--list")
        for part in ("resourceType=TOPIC, name=ledger, patternType=LITERAL", "resourceType=GROUP, name=books",
                     "resourceType=TOPIC, name=led, patternType=PREFIXED"):
            expect(part in everything, everything)
        match = self.tools.acls("--list", "--topic", "ledger", "--resource-pattern-type", "match")
        expect("name=led," in match and "name=ledger," in match and "books" not in match, match)
        literal = self.tools.acls("--list", "--topic", "ledger")
        expect("name=led," not in literal and "name=ledger," in literal, literal)
        whose = self.tools.acls("--list", "--principal", "User:eve")
        expect("User:eve" in whose and "User:alice" not in whose, whose)

    def convenience(self):
        # The next rules are about the cluster too: from then on nobody else may change rules.
        self.tools.acls("--add", "--allow-principal", "User:ANONYMOUS", "--operation", "All", "--cluster")
        self.tools.acls("--add", "--allow-principal", "User:carol", "--producer", "--topic", "orders", "--transactional-id",
                        "till", "--idempotent")
        self.tools.acls("--add", "--allow-principal", "User:carol", "--consumer", "--topic", "orders", "--group", "*")
        text = self.tools.acls("--list", "--principal", "User:carol")
        for what in ("resourceType=TRANSACTIONAL_ID, name=till", "resourceType=GROUP, name=*", "IDEMPOTENT_WRITE"):
            expect(what in text, text)

    def token(self):
        if self.broker.jars:
            return
        try:
            self.tools.acls("--add", "--allow-principal", "User:alice", "--operation", "Describe", "--delegation-token", "t")
        except RuntimeError as error:
            expect("no delegation tokens" in str(error), str(error))
        else:
            raise RuntimeError("it was taken")

    def denied(self):
        self.tools.topic("secret")
        self.tools.acls("--add", "--deny-principal", "User:ANONYMOUS", "--operation", "Write", "--topic", "secret")
        _, text = self.tools.perf("secret", 5, 10)
        expect("TopicAuthorizationException" in text and "[secret]" in text, text)
        self.tools.acls("--remove", "--force", "--deny-principal", "User:ANONYMOUS", "--operation", "Write", "--topic",
                        "secret")
        status, text = self.tools.perf("secret", 5, 10)
        expect(status == 0 and "5 records sent" in text and "Exception" not in text, text)

    def remove(self):
        self.tools.acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "ledger")
        text = self.tools.acls("--list", "--topic", "ledger")
        expect(not rule(text, "User:alice", "READ") and rule(text, "User:alice", "DESCRIBE"), text)
        self.tools.acls("--remove", "--force", "--topic", "ledger")
        text = self.tools.acls("--list", "--topic", "ledger")
        expect("ledger" not in text, text)

    def clients(self):
        of = ["--entity-type", "clients", "--entity-name", "meter"]
        self.tools.configs("--alter", *of, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
        self.tools.configs("--alter", "--entity-type", "clients", "--entity-default", "--add-config",
                           "request_percentage=2000")
        text = self.tools.configs("--describe", *of)
        expect("producer_byte_rate=1024" in text and "consumer_byte_rate=2048" in text, text)
        self.tools.configs("--alter", *of, "--delete-config", "consumer_byte_rate")
        text = self.tools.configs("--describe", "--entity-type", "clients")
        expect("producer_byte_rate=1024" in text and "consumer_byte_rate" not in text, text)
        expect("request_percentage=2000" in text, text)
        self.tools.configs("--alter", "--entity-type", "clients", "--entity-default", "--delete-config",
                           "request_percentage")

    def users(self):
        self.tools.configs("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config",
                           "controller_mutation_rate=5")
        self.tools.configs("--alter", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients",
                           "--entity-default", "--add-config", "request_percentage=50")
        text = self.tools.configs("--describe", "--entity-type", "users", "--entity-name", "alice", "--entity-type",
                                  "clients", "--entity-default")
        expect("request_percentage=50" in text, text)

    def ips(self):
        of = ["--entity-type", "ips", "--entity-name", "10.1.2.3"]
        self.tools.configs("--alter", *of, "--add-config", "connection_creation_rate=7")
        text = self.tools.configs("--describe", *of)
        expect("connection_creation_rate=7" in text, text)
        self.tools.configs("--alter", *of, "--delete-config", "connection_creation_rate")
        text = self.tools.configs("--describe", "--entity-type", "ips")
        expect("connection_creation_rate" not in text, text)

    def throttle_max(self, text):
        found = re.search(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", text)
        expect(found, text)
        return float(found.group(1))

    def perf_free(self):
        self.tools.topic("free")
        status, text = self.tools.perf("free", 1000, 1000)
        expect(status == 0 and self.throttle_max(text) == 0, text)

    def perf_limited(self):
        self.tools.configs("--alter", "--entity-type", "clients", "--entity-name", "limited", "--add-config",
                           f"producer_byte_rate={RATE}")
        # The window lets a burst of ten seconds pass; five times that is sent.
        status, text = self.tools.perf("free", 50 * RATE // 1000, 1000, client="limited")
        expect(status == 0 and self.throttle_max(text) > 0, text)
        final = [line for line in text.splitlines() if "records sent" in line][-1]
        rate = float(re.search(r"([\d.,]+) records/sec", final).group(1).replace(",", ".")) * 1000
        expect(rate < 1.5 * RATE, final)

    def perf_request(self):
        self.tools.configs("--alter", "--entity-type", "clients", "--entity-name", "slow", "--add-config",
                           "request_percentage=0.01")
        status, text = self.tools.perf("free", 2000, 1000, client="slow")
        expect(status == 0 and self.throttle_max(text) > 0, text)

    def restart(self):
        self.broker.kill9()
        self.broker.start()
        text = self.tools.acls("--list")
        expect(rule(text, "User:eve", "WRITE", "DENY"), text)
        text = self.tools.configs("--describe", "--entity-type", "clients")
        expect(f"producer_byte_rate={RATE}" in text, text)


def main():
    tally = Tally()
    broker = Broker(SETTINGS)
    try:
        for name, step in Steps(broker).steps().items():
            try:
                step()
                tally.add(name)
            except Exception as error:  # pylint: disable=broad-except
                tally.add(name, error)
        broker.stop()
        tally.add("the broker stops cleanly and its tripwires are zero")
    except Exception as error:  # pylint: disable=broad-except
        tally.add("the broker", error)
    finally:
        broker.discard()
    return tally.close()


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())

"""Groups of real clients behind SASL_SSL, where their user may do exactly what they need and nothing else.

    guarded.py [NAME...]       some of the groups of groups.py whose members can log in; all of those without arguments

They go through the same life as in groups.py: members come, go and are killed, and so is the broker. Only what watches over
them (the topics, what is written, what has arrived) uses the plaintext listener, whose user is above the rules.
"""

import os
import sys
import tempfile
import time
import traceback

from confluent_kafka.admin import (
    AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType,
)

from groups import CHAIN, SETTINGS, STAGES, run_groups
from harness import Tally
from secure import PASSWORD, USER, Pki, Ruled, make_user

# Those whose members take a login from the environment.
NAMES = ["librdkafka-range", "librdkafka-cooperative", "librdkafka-consumer", "kafka-python", "kafkajs", CHAIN]
MECHANISM = "SCRAM-SHA-512"


class Guarded(Ruled):
    """With rules and logins, and the settings of the groups."""

    def _seawall(self):
        return super()._seawall() + [word for setting in SETTINGS for word in ("--set", setting)]


def rules(names):
    """(kind, name, operation) of what the members of these groups need."""
    for name in names:
        stages = [name]
        if name == CHAIN:
            stages = [CHAIN, *(f"{CHAIN}-{stage}" for stage in range(1, len(STAGES)))]
            for stage in range(1, len(STAGES) + 1):
                yield ResourceType.TOPIC, f"{CHAIN}-{stage}", AclOperation.WRITE
        for stage in stages:
            yield ResourceType.TOPIC, stage, AclOperation.READ
            yield ResourceType.GROUP, stage, AclOperation.READ


def allow(broker, names):
    """Makes the rules."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    bindings = [AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
                for kind, name, operation in rules(names)]
    for made in admin.create_acls(bindings).values():
        made.result(60)


def run(names, tally, scratch):
    broker = Guarded(Pki(scratch))
    try:
        make_user(broker, tally)
        allow(broker, names)
        case = {"protocol": "SASL_SSL", "ca": broker.pki.path("ca.pem"), "mechanism": MECHANISM, "user": USER, "password": PASSWORD}
        path = os.path.join(scratch, "case")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\t".join(f"{key}={value}" for key, value in case.items()))
    except BaseException:
        broker.discard()
        raise
    run_groups(names, tally, broker=broker, bootstrap=f"localhost:{broker.ports['SECURE']}", environment={"SEAWALL_CASE": path})


def main():
    tally = Tally()
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="seawall-guarded-") as scratch:
            run(sys.argv[1:] or NAMES, tally, scratch)
    except Exception as error:
        traceback.print_exc()
        tally.add("the run as a whole", repr(error))
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())

"""A group member with kafka-python."""

import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from member import Member
from secure import case_of_environment, kafka_python_settings

PATIENCE_S = 30


class Listener(ConsumerRebalanceListener):
    """Writes down which partitions came and went."""

    def __init__(self, member):
        self.member = member

    def on_partitions_assigned(self, assigned):
        self.member.say_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked):
        self.member.say_partitions("revoked", revoked)

    def on_partitions_lost(self, lost):
        self.member.say_partitions("lost", lost)


def patiently(member, call):
    """Calls again while the broker is away."""
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while True:
        try:
            return call()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
            member.say("note", repr(error))
            pause.wait(0.2)


def main():
    member = Member()
    options = member.options
    case = case_of_environment(options["bootstrap"])
    place = kafka_python_settings(case) if case else {"bootstrap_servers": options["bootstrap"]}
    # A member outlasts an absence of the broker.
    place.pop("bootstrap_timeout_ms", None)
    consumer = KafkaConsumer(
        **place, group_id=options["group"], enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=int(options["session"]), heartbeat_interval_ms=1000,
        group_instance_id=options.get("instance"), reconnect_backoff_max_ms=1000, metadata_max_age_ms=5000,
        partition_assignment_strategy=[RangePartitionAssignor])
    consumer.subscribe([options["topic"]], listener=Listener(member))
    member.say("start")
    try:
        while not member.stopping:
            polled = patiently(member, lambda: consumer.poll(timeout_ms=200))
            if not polled:
                continue
            ends = {}
            for partition, records in polled.items():
                for record in records:
                    member.say("record", record.partition, record.offset, record.value.decode())
                ends[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            patiently(member, lambda: consumer.commit(ends))
            for partition, end in ends.items():
                member.say("committed", partition.partition, end.offset)
    except KafkaError as error:
        member.say("error", repr(error))
    consumer.close()
    member.say("end")


if __name__ == "__main__":
    main()

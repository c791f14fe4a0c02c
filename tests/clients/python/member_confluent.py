"""A group member with confluent-kafka (librdkafka), of either group protocol; with `--into` it writes on what it reads."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from member import Member
from secure import case_of_environment, confluent_settings

# The broker does not know the member any more, or somebody else is it now. An illegal generation is none of these: with
# cooperative rebalances a member goes on with what it keeps, and its commit may cross the begin of the next generation.
EXPELLED = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._FENCED)
PATIENCE_S = 30


def config(options):
    """librdkafka's configuration for the options of a member."""
    settings = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 5000,
    }
    if "instance" in options:
        settings["group.instance.id"] = options["instance"]
    if options["protocol"] == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["partition.assignment.strategy"] = options["assignor"]
        settings["session.timeout.ms"] = int(options["session"])
        settings["heartbeat.interval.ms"] = 1000
    return settings | security(options)


def security(options):
    """What a listener with TLS and logins asks for, if there is one."""
    case = case_of_environment(options["bootstrap"])
    return confluent_settings(case) if case else {}


class Onward:
    """Writes what was read into another topic, if the member is to."""

    def __init__(self, options):
        self.topic = options.get("into")
        self.producer = Producer({
            "bootstrap.servers": options["bootstrap"], "enable.idempotence": True, "linger.ms": 1, "log_level": 0,
            "reconnect.backoff.max.ms": 1000, "message.timeout.ms": 60_000} | security(options)) if self.topic else None

    def write(self, messages):
        """Returns when all is written."""
        if not self.topic:
            return
        failed = []
        for message in messages:
            self.producer.produce(self.topic, value=message.value(),
                                  on_delivery=lambda error, _: failed.append(error) if error else None)
        if self.producer.flush(60) or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))


def commit(member, consumer, messages):
    """Commits what lies behind these messages, however often it takes."""
    ends = {}
    for message in messages:
        member.say("record", message.partition(), message.offset(), message.value().decode())
        ends[message.partition()] = message.offset() + 1
    offsets = [TopicPartition(member.options["topic"], partition, offset) for partition, offset in ends.items()]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            break
        except KafkaException as error:
            if error.args[0].code() in EXPELLED or time.monotonic() > deadline:
                raise
            member.say("retry", error)
    for partition, offset in ends.items():
        member.say("committed", partition, offset)


def main():
    member = Member()
    consumer = Consumer(config(member.options))
    onward = Onward(member.options)
    say = lambda word: lambda _consumer, partitions: member.say_partitions(word, partitions)
    consumer.subscribe([member.options["topic"]], on_assign=say("assigned"), on_revoke=say("revoked"), on_lost=say("lost"))
    member.say("start")
    try:
        while not member.stopping:
            messages = consumer.consume(500, timeout=0.2)
            good = [message for message in messages if message.error() is None]
            for message in messages:
                if message.error() is not None and not message.error().retriable():
                    member.say("note", message.error())
            if good:
                onward.write(good)
                commit(member, consumer, good)
    except KafkaException as error:
        member.say("error", error)
    consumer.close()
    member.say("end")


if __name__ == "__main__":
    main()

"""confluent-kafka: the librdkafka of its wheel, newer than kcat's."""

import time

from confluent_kafka import Consumer, Producer, TopicPartition

import jobs

PATIENCE_S = 60


def write(bootstrap, topic, codec, acks, path):
    idempotent = acks == "idem"
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "compression.codec": codec,
        "acks": "all" if idempotent else acks,
        "enable.idempotence": idempotent,
        "message.timeout.ms": PATIENCE_S * 1000,
    })
    failed = []
    report = lambda error, _message: failed.append(error) if error else None
    for line in jobs.lines_of(path):
        producer.produce(topic, value=line, partition=0, on_delivery=report)
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if left or failed:
        raise RuntimeError(f"{left} left, failed: {failed[:1]}")


def read(bootstrap, topic, partition, offset, count, out):
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "unused-since-partitions-are-assigned",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    })
    left = int(count)
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, int(partition), int(offset))])
        with open(out, "wb") as file:
            while left > 0:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{left} records still missing")
                for message in consumer.consume(left if left < 1000 else 1000, timeout=0.5):
                    if message.error():
                        raise RuntimeError(str(message.error()))
                    file.write(message.value() + b"\n")
                    left -= 1
    finally:
        consumer.close()


if __name__ == "__main__":
    jobs.main({"write": write, "read": read})

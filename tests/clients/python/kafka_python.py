"""kafka-python: a client in pure Python, unrelated to the others."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import jobs

PATIENCE_S = 60


def write(bootstrap, topic, codec, acks, path):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all" if acks == "idem" else (acks if acks == "all" else int(acks)),
        enable_idempotence=acks == "idem",
        linger_ms=5,
    )
    try:
        sent = [producer.send(topic, value=line, partition=0) for line in jobs.lines_of(path)]
        producer.flush(timeout=PATIENCE_S)
        for future in sent:
            future.get(timeout=PATIENCE_S)
    finally:
        producer.close(timeout=PATIENCE_S)


def read(bootstrap, topic, partition, offset, count, out):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    left = int(count)
    deadline = time.monotonic() + PATIENCE_S
    try:
        wanted = TopicPartition(topic, int(partition))
        consumer.assign([wanted])
        consumer.seek(wanted, int(offset))
        with open(out, "wb") as file:
            while left > 0:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{left} records still missing")
                for records in consumer.poll(timeout_ms=500, max_records=left).values():
                    file.write(b"".join(record.value + b"\n" for record in records))
                    left -= len(records)
    finally:
        consumer.close()


if __name__ == "__main__":
    jobs.main({"write": write, "read": read})

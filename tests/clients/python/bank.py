"""confluent-kafka's transactions (librdkafka, v1): the transfers of Bank.java.

    bank.py transfer BOOTSTRAP TOPIC ID SECONDS OUT
"""

import sys
import time

from confluent_kafka import KafkaException, Producer

PATIENCE_S = 120


def producer(bootstrap, name):
    made = Producer({
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": 20_000,
        "reconnect.backoff.max.ms": 200,
        "socket.timeout.ms": 10_000,
    })
    made.init_transactions(PATIENCE_S)
    return made


def one(made, topic, partitions, key, n):
    """What became of a transfer: committed, aborted, or nobody knows."""
    try:
        made.begin_transaction()
        made.produce(topic, key=key, value=f"-{n + 1}", partition=n % partitions)
        made.produce(topic, key=key, value=f"{n + 1}", partition=(n + 1) % partitions)
        if n % 3 == 2:
            if n % 2 == 0:
                made.flush(PATIENCE_S)
            made.abort_transaction(PATIENCE_S)
            return "aborted"
        made.commit_transaction(PATIENCE_S)
        return "committed"
    except KafkaException as error:
        print(f"{key}\t{error}", file=sys.stderr)
        return "unknown"


def transfer(bootstrap, topic, name, seconds, out):
    made = producer(bootstrap, name)
    partitions = len(made.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    end = time.monotonic() + float(seconds)
    n = 0
    with open(out, "w", encoding="utf-8") as file:
        while time.monotonic() < end:
            key = f"{name}-{n}"
            outcome = one(made, topic, partitions, key, n)
            file.write(f"{outcome}\t{key}\n")
            if outcome == "unknown":
                made = producer(bootstrap, name)
            n += 1


if __name__ == "__main__":
    transfer(*sys.argv[2:])

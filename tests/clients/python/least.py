"""librdkafka with the rules it needs and no others: reads with a group and writes in a transaction, behind SASL_SSL.

    least.py FILE       one case as in secure.py, with plain, source, sink, group, and id

Prints ok, or fail and why.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer

from secure import confluent_settings

PATIENCE_S = 30


def seed(case):
    """A record to be read, by one who may do everything."""
    producer = Producer({"bootstrap.servers": case["plain"]})
    producer.produce(case["source"], value=b"an order", partition=0)
    if producer.flush(PATIENCE_S):
        raise TimeoutError("the record to be read was not written")


def read_one(consumer, faults):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error():
            raise KafkaException(message.error())
        if message is not None:
            return message
    raise TimeoutError(f"no record came: {faults[:3]}")


def carry(case):
    """One record from the source to the sink, with its offset, in one transaction."""
    faults = []
    settings = confluent_settings(case) | {"error_cb": lambda error: faults.append(str(error))}
    consumer = Consumer(settings | {"group.id": case["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                    "isolation.level": "read_committed"})
    try:
        consumer.subscribe([case["source"]])
        message = read_one(consumer, faults)
        producer = Producer(settings | {"transactional.id": case["id"]})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        delivered = []
        producer.produce(case["sink"], value=message.value(), partition=0,
                         on_delivery=lambda error, _message: delivered.append(error))
        producer.flush(PATIENCE_S)
        if not delivered:
            raise TimeoutError(f"the record was not written: {faults[:3]}")
        if delivered[0]:
            raise KafkaException(delivered[0])
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(),
                                             PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
    finally:
        consumer.close()


def main(path):
    with open(path, encoding="utf-8") as file:
        case = dict(word.split("=", 1) for word in file.read().strip().split("\t"))
    seed(case)
    try:
        carry(case)
    except (KafkaException, TimeoutError) as error:
        print(f"fail\t{error}")
    else:
        print("ok")


if __name__ == "__main__":
    main(sys.argv[1])

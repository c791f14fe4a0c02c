"""kafka-python and librdkafka (confluent-kafka) behind TLS and logins: a case a line, as in ../secure.py.

    secure.py kafka-python|confluent FILE
"""

import os
import sys
import time

PATIENCE_S = 15
AUTHORITY_ERRORS = ("_SSL", "_AUTHENTICATION", "_RESOLVE", "_TRANSPORT")


def case_of_environment(bootstrap):
    """How a client that is told nothing else is to connect, from a line in the file SEAWALL_CASE; None without one."""
    if "SEAWALL_CASE" not in os.environ:
        return None
    with open(os.environ["SEAWALL_CASE"], encoding="utf-8") as file:
        case = dict(word.split("=", 1) for word in file.read().strip().split("\t"))
    return case | {"bootstrap": bootstrap}


def confluent_settings(case):
    settings = {"bootstrap.servers": case["bootstrap"], "security.protocol": case["protocol"]}
    for name, key in [("ca", "ssl.ca.location"), ("certificate", "ssl.certificate.location"), ("key", "ssl.key.location")]:
        if name in case:
            settings[key] = case[name]
    if "mechanism" in case:
        settings["sasl.mechanisms"] = case["mechanism"]
    if "user" in case:
        settings["sasl.username"], settings["sasl.password"] = case["user"], case["password"]
    if "token" in case:
        with open(case["token"], encoding="utf-8") as file:
            token = file.read().strip()
        settings["oauth_cb"] = lambda _config: (token, time.time() + 300)
    return settings


def confluent(case):
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    faults = []
    settings = confluent_settings(case) | {"error_cb": lambda error: faults.append(str(error))}
    delivered = []
    producer = Producer(settings | {"message.timeout.ms": PATIENCE_S * 1000})
    producer.produce(case["topic"], value=b"there and back", partition=0,
                     on_delivery=lambda error, _message: delivered.append(error))
    deadline = time.monotonic() + PATIENCE_S
    # A client that is refused tries for ever: its first words about it are the outcome.
    refused = lambda: [fault for fault in faults if any(word in fault for word in AUTHORITY_ERRORS[:2])]
    while not delivered and not refused() and time.monotonic() < deadline:
        producer.poll(0.2)
    if not delivered or delivered[0]:
        producer.purge()
        raise KafkaException(f"{delivered} {faults[:3]}")
    consumer = Consumer(settings | {"group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(case["topic"], 0, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no record came back: {faults[:3]}")
    finally:
        consumer.close()


def kafka_python_settings(case):
    settings = {"bootstrap_servers": case["bootstrap"], "security_protocol": case["protocol"],
                "bootstrap_timeout_ms": PATIENCE_S * 1000 // 3}
    for name, key in [("ca", "ssl_cafile"), ("certificate", "ssl_certfile"), ("key", "ssl_keyfile")]:
        if name in case:
            settings[key] = case[name]
    if "mechanism" in case:
        settings["sasl_mechanism"] = case["mechanism"]
    if "user" in case:
        settings["sasl_plain_username"], settings["sasl_plain_password"] = case["user"], case["password"]
    if "token" in case:
        settings["sasl_oauth_token_provider"] = provider(case["token"])
    return settings


def provider(path):
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileTokens(AbstractTokenProvider):
        def token(self):
            with open(path, encoding="utf-8") as file:
                return file.read().strip()

    return FileTokens()


def kafka_python(case):
    import logging

    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    # What is wrong stands in its log alone.
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("kafka").addHandler(handler)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    logging.getLogger("kafka").propagate = False
    settings = kafka_python_settings(case)
    try:
        producer = KafkaProducer(**settings, max_block_ms=PATIENCE_S * 1000)
        producer.send(case["topic"], value=b"there and back", partition=0).get(PATIENCE_S)
        producer.close(timeout=PATIENCE_S)
        consumer = KafkaConsumer(**settings, enable_auto_commit=False)
        wanted = TopicPartition(case["topic"], 0)
        consumer.assign([wanted])
        consumer.seek(wanted, 0)
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.poll(timeout_ms=500):
            if time.monotonic() > deadline:
                raise TimeoutError("no record came back")
        consumer.close()
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error} {said[:3]}") from error
    finally:
        logging.getLogger("kafka").removeHandler(handler)


def main():
    run = {"confluent": confluent, "kafka-python": kafka_python}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as cases:
        for number, line in enumerate(cases):
            case = dict(word.split("=", 1) for word in line.rstrip("\n").split("\t"))
            try:
                run(case)
                print(f"ok\t{number}", flush=True)
            except Exception as error:  # the report is the point: any failure is this case's failure
                print(f"fail\t{number}\t{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()

"""Kafka's own tools on groups: kafka-consumer-groups, kafka-groups, and the console consumer without a partition."""

def run(tally):
    pass

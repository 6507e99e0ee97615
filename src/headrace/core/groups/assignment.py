"""Which consumer of a group reads which partition: partition modulo number of consumers ."""

from __future__ import annotations


def partitions_of(consumer: int, consumers: int, partitions: int) -> range:
    """The partitions of one of `consumers` consumers, in a topic with `partitions` partitions."""
    return range(consumer, partitions, consumers)


def owner_of(partition: int, consumers: int) -> int:
    """The consumer that reads a partition."""
    return partition % consumers

"""The rate limit of micro-batches: maximum messages and bytes, shared fairly between partitions.

Each partition gets a share in proportion to its lag, so that all reach their end together, and at least one message, so
that none starves. If there are more partitions than messages, they take turns. `stream_reader` applies it to each
micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.spark.reader.splits import Offsets, PartitionKey, Ranges

Shares = Mapping[PartitionKey, tuple[int, int, int]]
OffsetsWithin = Callable[[Shares], Offsets]


def waiting(start: Offsets, end: Offsets) -> Ranges:
    """The unread range of each partition that has one."""
    return {partition: (start[partition], stop) for partition, stop in end.items() if start[partition] < stop}


def within_messages(ranges: Ranges, messages_max: int) -> Ranges:
    """Limit the unread ranges to a number of messages, at least one.

    >>> one, other = PartitionKey(7, "orders", 0), PartitionKey(7, "orders", 1)
    >>> within_messages({one: (0, 30), other: (5, 15)}, 20) == {one: (0, 15), other: (5, 10)}
    True
    """
    total = sum(end - start for start, end in ranges.values())
    if total <= messages_max:
        return ranges
    shares = dict.fromkeys(_in_turn(ranges)[:messages_max], 1)
    rest, more = messages_max - len(shares), total - len(shares)
    if rest:
        shares = {partition: 1 + (end - start - 1) * rest // more for partition, (start, end) in ranges.items()}
        # The rounding remainder goes to the partitions with the largest lag.
        longest = sorted(ranges, key=lambda named: ranges[named][0] - ranges[named][1])
        for partition in longest[: messages_max - sum(shares.values())]:
            shares[partition] += 1
    return {partition: (start, start + shares.get(partition, 0)) for partition, (start, _) in ranges.items()}


def _in_turn(ranges: Ranges) -> list[PartitionKey]:
    """The partitions, beginning with another one in every batch: each batch moves the starts by what it reads."""
    partitions = sorted(ranges)
    first = sum(start for start, _ in ranges.values()) % len(partitions)
    return partitions[first:] + partitions[:first]


def within_bytes(ranges: Ranges, bytes_max: int, offsets_within: OffsetsWithin) -> Ranges:
    """Limit the unread ranges to about a number of bytes, at least one message of each partition.

    offsets_within: up to which offset each range has about so many bytes, of (start, end, bytes) of all of them.
    """
    total = sum(end - start for start, end in ranges.values())
    shares = {
        partition: (start, end, max(1, bytes_max * (end - start) // total))
        for partition, (start, end) in ranges.items()
    }
    stops = offsets_within(shares)
    return {
        partition: (start, min(end, max(start + 1, stops[partition]))) for partition, (start, end) in ranges.items()
    }

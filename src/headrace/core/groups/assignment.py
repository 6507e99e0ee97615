"""Who should read which partition.

Two ways. A group of fixed size: partition modulo number of consumers, so that anyone can compute it. An open group:
even shares with the fewest moves. A member keeps what it owns up to its share, and only what is above is revoked;
the larger shares go to those who own most, so that nothing moves which need not.

Members that read several topics are in a group of each. There the larger shares rotate from topic to topic: if those
who own most kept them, the first member would own every topic of one partition.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping


def partitions_of(consumer: int, consumers: int, partitions: int) -> range:
    """The partitions of one of `consumers` consumers of a fixed group, in a topic with `partitions` partitions."""
    return range(consumer, partitions, consumers)


def owner_of(partition: int, consumers: int) -> int:
    """The consumer of a fixed group that reads a partition."""
    return partition % consumers


def shares(owned: Mapping[str, int], partitions: int, topic_index: int | None = None) -> dict[str, int]:
    """How many partitions each member should have, given how many it owns: even, the larger shares to the largest.

    With the index of the topic among those that the members read, the larger shares continue behind those of the topic
    before.
    """
    least, larger = divmod(partitions, len(owned))
    if topic_index is None:
        ranked = sorted(owned, key=lambda member: (-owned[member], member))
    else:
        first, names = topic_index * larger % len(owned), sorted(owned)
        ranked = names[first:] + names[:first]
    return {member: least + (place < larger) for place, member in enumerate(ranked)}


def deal(free: Iterable[int], kept: Mapping[str, int], share: Mapping[str, int]) -> dict[int, str]:
    """Give each free partition to the member with the fewest of those below their share."""
    open_places = [(kept[member], member) for member in kept if kept[member] < share[member]]
    heapq.heapify(open_places)
    dealt: dict[int, str] = {}
    for partition in sorted(free):
        count, member = heapq.heappop(open_places)
        dealt[partition] = member
        if count + 1 < share[member]:
            heapq.heappush(open_places, (count + 1, member))
    return dealt

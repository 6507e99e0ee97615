"""Divides the partitions of topics among the members of a group, as evenly as their topics allow. Pure.

Each member keeps what it has as far as its share goes. Takes about as long as there are partitions, whoever reads them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Owned(NamedTuple):
    """A partition of a topic, which is known by its number: another topic of its name is another one."""

    topic_id: int
    partition: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be assigned in an epoch: the topics of members, numbers and sizes of topics, and what members have."""

    epoch: int
    topics: Mapping[str, frozenset[str]]
    sizes: Mapping[str, tuple[int, int]]
    present: Mapping[str, frozenset[Owned]]

    @property
    def places(self) -> int:
        """How many partitions there are."""
        return sum(count for _, count in self.sizes.values())


@dataclass(slots=True)
class _Share:
    """The partitions of topics that the same members read, and those that nobody keeps."""

    readers: list[str]
    places: list[Owned]
    left: list[Owned]


def assign(plan: Plan) -> dict[str, frozenset[Owned]]:
    """Partitions for each member."""
    shares = _shares(plan)
    found: dict[str, set[Owned]] = {member: set() for member in plan.topics}
    owners = {place: member for member, owned in plan.present.items() for place in owned}
    least, extra = divmod(sum(len(share.places) for share in shares), len(found)) if found else (0, 0)
    for share in shares:
        readers = set(share.readers)
        for place in share.places:
            owner = owners.get(place)
            if owner is None or owner not in readers or len(found[owner]) > least:
                share.left.append(place)
            elif len(found[owner]) < least:
                found[owner].add(place)
            elif extra:
                extra -= 1
                found[owner].add(place)
            else:
                share.left.append(place)
    for share in shares:
        loads = [(len(found[member]), number, member) for number, member in enumerate(share.readers)]
        heapq.heapify(loads)
        for place in share.left:
            load, number, member = loads[0]
            found[member].add(place)
            heapq.heapreplace(loads, (load + 1, number, member))
    # What has not changed is the same object.
    return {
        member: plan.present[member] if owned == plan.present[member] else frozenset(owned)
        for member, owned in found.items()
    }


def _shares(plan: Plan) -> list[_Share]:
    """Partitions by who reads them, those with the fewest readers first. Members with the same topics are one."""
    members: dict[frozenset[str], list[str]] = {}
    for member, topics in plan.topics.items():
        members.setdefault(topics, []).append(member)
    subscriptions = list(members)
    readers: dict[str, list[int]] = {name: [] for name in sorted(plan.sizes)}
    for number, topics in enumerate(subscriptions):
        for name in topics & readers.keys():
            readers[name].append(number)
    shares: dict[tuple[int, ...], _Share] = {}
    for name, numbers in readers.items():
        key = tuple(numbers)
        if key and key not in shares:
            shares[key] = _Share([member for number in numbers for member in members[subscriptions[number]]], [], [])
        if key:
            topic_id, count = plan.sizes[name]
            shares[key].places += [Owned(topic_id, partition) for partition in range(count)]
    return sorted(shares.values(), key=lambda share: len(share.readers))

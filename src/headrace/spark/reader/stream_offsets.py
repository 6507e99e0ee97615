"""The offsets of a stream as Spark keeps them in its checkpoint.

Spark compares offsets by their JSON text, so there is one text for each: topics by id, the next offset of each
partition in a list from partition 0 on, a version. The id of a topic shows whether it was deleted and created again.

Version 2 had offsets by partition, which takes three times the room. Version 1 had one topic and no id: such a topic is
taken for the one that has its name now. Both are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.spark.reader.splits import Offsets, PartitionKey

VERSION: Final = 3
# The id of a topic in version 1.
UNKNOWN_ID: Final = -1


def encode(offsets: Offsets) -> dict[str, Any]:
    """Next offsets as Spark wants them; a partition without one, before others that have one, is null.

    >>> encode({PartitionKey(7, "orders", 1): 9, PartitionKey(7, "orders", 0): 3})
    {'version': 3, 'topics': {'7': {'name': 'orders', 'next': [3, 9]}}}
    """
    topics: dict[str, Any] = {}
    for place in sorted(offsets):
        listed: list[int | None] = topics.setdefault(str(place.topic_id), {"name": place.topic, "next": []})["next"]
        listed += [None] * (place.partition - len(listed))
        listed.append(offsets[place])
    return {"version": VERSION, "topics": topics}


def decode(given: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Parse next offsets from a checkpoint."""
    version = given.get("version")
    if version == 1:
        return _by_partition(UNKNOWN_ID, str(given["topic"]), given["offsets"])
    if version not in (2, VERSION):
        rule = f"this Headrace supports versions 1 to {VERSION}: upgrade it, or start with a new checkpoint"
        raise InvalidInput("checkpoint", f"of version {version!r}"[:100], rule)
    offsets: dict[PartitionKey, int] = {}
    for topic_id, topic in given["topics"].items():
        if version == 2:
            offsets |= _by_partition(int(topic_id), str(topic["name"]), topic["offsets"])
        else:
            offsets |= _listed(int(topic_id), str(topic["name"]), topic["next"])
    return offsets


def _by_partition(topic_id: int, name: str, offsets: Mapping[str, Any]) -> dict[PartitionKey, int]:
    return {PartitionKey(topic_id, name, int(partition)): int(offset) for partition, offset in offsets.items()}


def _listed(topic_id: int, name: str, offsets: Sequence[int | None]) -> dict[PartitionKey, int]:
    return {PartitionKey(topic_id, name, at): offset for at, offset in enumerate(offsets) if offset is not None}

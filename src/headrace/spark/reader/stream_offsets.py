"""The offsets of a stream as Spark keeps them in its checkpoint.

Spark compares offsets by their JSON text, so there is one text for each: topics by id, partitions in order, whole
numbers, a version. The id of a topic shows whether it was deleted and created again.

Version 1 had one topic and no id: such a topic is taken for the one that has its name now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.spark.reader.splits import Offsets, PartitionKey

VERSION: Final = 2
# The id of a topic in version 1.
UNKNOWN_ID: Final = -1


def encode(offsets: Offsets) -> dict[str, Any]:
    """Next offsets as Spark wants them.

    >>> encode({PartitionKey(7, "orders", 1): 9, PartitionKey(7, "orders", 0): 3})
    {'version': 2, 'topics': {'7': {'name': 'orders', 'offsets': {'0': 3, '1': 9}}}}
    """
    topics: dict[str, Any] = {}
    for place in sorted(offsets):
        topic = topics.setdefault(str(place.topic_id), {"name": place.topic, "offsets": {}})
        topic["offsets"][str(place.partition)] = offsets[place]
    return {"version": VERSION, "topics": topics}


def decode(given: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Parse next offsets from a checkpoint."""
    version = given.get("version")
    if version == 1:
        return _of_topic(UNKNOWN_ID, str(given["topic"]), given["offsets"])
    if version != VERSION:
        rule = f"this Headrace supports versions 1 and {VERSION}: upgrade it, or start with a new checkpoint"
        raise InvalidInput("checkpoint", f"of version {version!r}"[:100], rule)
    offsets: dict[PartitionKey, int] = {}
    for topic_id, topic in given["topics"].items():
        offsets |= _of_topic(int(topic_id), str(topic["name"]), topic["offsets"])
    return offsets


def _of_topic(topic_id: int, name: str, offsets: Mapping[str, Any]) -> dict[PartitionKey, int]:
    return {PartitionKey(topic_id, name, int(partition)): int(offset) for partition, offset in offsets.items()}

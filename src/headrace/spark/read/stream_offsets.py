"""The offsets of a stream as Spark keeps them in its checkpoint.

Spark compares offsets by their JSON text, so there is one text for each: partitions in order, whole numbers, a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.core.names import topic_key

VERSION: Final = 1


def encode(topic: str, offsets: Mapping[int, int]) -> dict[str, Any]:
    """Next offsets by partition as Spark wants them.

    >>> encode("orders", {1: 7, 0: 3})
    {'version': 1, 'topic': 'orders', 'offsets': {'0': 3, '1': 7}}
    """
    return {
        "version": VERSION,
        "topic": topic,
        "offsets": {str(partition): offsets[partition] for partition in sorted(offsets)},
    }


def decode(topic: str, given: Mapping[str, Any]) -> dict[int, int]:
    """Parse next offsets by partition from a checkpoint; raises if it belongs to another topic."""
    if given.get("version") != VERSION:
        rule = f"this Headrace supports version {VERSION}: upgrade it, or start with a new checkpoint"
        raise InvalidInput("checkpoint", f"of version {given.get('version')!r}"[:100], rule)
    if topic_key(str(given["topic"])) != topic_key(topic):
        rule = f"the query now reads {topic!r}: start with a new checkpoint"
        raise InvalidInput("checkpoint", f"of topic {given['topic']!r}", rule)
    return {int(partition): int(offset) for partition, offset in given["offsets"].items()}

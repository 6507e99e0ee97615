"""DescribeLogDirs: what each partition takes on the device; one directory stands for the store.

The messages of a topic's partitions are stored together: a partition counts for its part of the topic's messages. A
server of several is asked about the partitions that it leads, so that a client which adds up counts each once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from kio.schema.errors import ErrorCode

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.rights import Right
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.topic_ids import TopicLookup

DIRECTORY: Final = "/headrace"
# Topics that a thread looks at, before others get their turn.
_PIECE_TOPICS: Final = 100


@dataclass(frozen=True, slots=True)
class _Asked:
    """A topic, and the partitions of it that are asked for."""

    reader: TopicReader
    partitions: Collection[int]


async def describe_log_dirs(call: Call, request: Any) -> dict[str, Any]:
    """The sizes of partitions: of all that the caller may see, or of those that are named."""
    call.principal.require("whoami")
    asked = await call.parts.bridge.call(_asked, call, request.topics)
    await call.hold(len(asked) + sum(len(each.partitions) for each in asked), (each.reader.name for each in asked))
    topics: list[dict[str, Any]] = []
    for first in range(0, len(asked), _PIECE_TOPICS):
        topics += await call.parts.bridge.call(_sizes, call, asked[first : first + _PIECE_TOPICS])
    result = {"error_code": ErrorCode.none, "log_dir": DIRECTORY, "topics": topics}
    if call.principal.caller.may(Right.MANAGE, "*"):
        metrics = await call.parts.bridge.call(call.parts.bridge.broker.store_metrics)
        if metrics.disk_size_bytes is not None and metrics.disk_free_bytes is not None:
            result |= {"total_bytes": metrics.disk_size_bytes, "usable_bytes": metrics.disk_free_bytes}
    return {"error_code": ErrorCode.none, "results": [result]}


def _asked(call: Call, topics: Any) -> list[_Asked]:
    """The topics with what is asked of them; those that the caller may not see, or that do not exist, are left out."""
    caller = call.principal.caller
    lookup = TopicLookup(call.parts.bridge.broker, caller)
    named: dict[str, set[int] | None]
    if topics is None:
        named = dict.fromkeys(filter(caller.may_see, call.parts.bridge.broker.list_topics()))
    else:
        wanted: dict[str, set[int]] = {}
        for each in topics:
            wanted.setdefault(each.topic, set()).update(each.partitions)
        named = {name: partitions for name, partitions in wanted.items() if caller.may_see(name)}
    asked = []
    for name, partitions in named.items():
        try:
            reader = lookup.reader(name)
        except HeadraceError:
            continue
        asked.append(_Asked(reader, range(reader.partitions) if partitions is None else sorted(partitions)))
    return asked


def _sizes(call: Call, asked: Iterable[_Asked]) -> list[dict[str, Any]]:
    answers = []
    for each in asked:
        try:
            sizes = _partition_bytes(each.reader)
        except HeadraceError:
            # It was deleted meanwhile.
            continue
        leaders = call.parts.nodes.leaders(each.reader.topic_id, len(sizes))
        partitions = [
            {"partition_index": number, "partition_size": sizes[number], "offset_lag": 0, "is_future_key": False}
            for number in each.partitions
            if 0 <= number < len(sizes) and leaders[number] == call.parts.nodes.own_id
        ]
        if partitions:
            answers.append({"name": each.reader.name, "partitions": partitions})
    return answers


def _partition_bytes(reader: TopicReader) -> list[int]:
    """What each partition takes, by the number of its messages."""
    offsets = reader.offsets()
    counts = offsets.end - offsets.start
    total = reader.bytes_stored() if counts.any() else 0
    sizes: list[int] = (counts * (total / max(1, int(counts.sum())))).astype(np.int64).tolist()
    return sizes

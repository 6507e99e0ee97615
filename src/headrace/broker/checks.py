"""Checks every unchecked value that the facade gets from callers; errors name the field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.core.checks import check_index, check_whole
from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX, SEQNO_MAX, TRANSACTION_TOPICS_MAX
from headrace.core.names import check_group_name, check_id, check_topic_name
from headrace.core.publish.state import FINGERPRINT_BITS, CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets


def check_text(field: str, value: object) -> str:
    """Check that a value is text; producer ids may be any text."""
    if not isinstance(value, str):
        raise InvalidInput(field, repr(value)[:100], "it must be text")
    return value


def check_batch(batch: object) -> pa.RecordBatch:
    """Check that a value is a batch; its content is checked when it is accepted."""
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidInput("batch", type(batch).__name__, "it must be a pyarrow RecordBatch")
    return batch


def check_commit_key(key: object) -> CommitKey | None:
    """Check a commit key, or None."""
    if key is None:
        return None
    if not isinstance(key, CommitKey):
        raise InvalidInput("commit_key", repr(key)[:100], "it must be a CommitKey(writer, number)")
    writer, fingerprint = check_id("writer", key.writer), key.fingerprint
    if fingerprint is None:
        return CommitKey(writer, check_whole("commit number", key.number, 0, SEQNO_MAX))
    number = check_whole("commit number", key.number, 0, SEQNO_MAX >> FINGERPRINT_BITS)
    return CommitKey(writer, number, check_whole("fingerprint", fingerprint, 0, (1 << FINGERPRINT_BITS) - 1))


def check_offsets(offsets: object, field: str = "offsets") -> dict[int, int]:
    """Offsets by partition, of Python's own numbers: the catalog would keep those of numpy as bytes."""
    if not isinstance(offsets, Mapping):
        raise InvalidInput(field, repr(offsets)[:100], "it must map partitions to offsets")
    return {check_index("partition", partition): check_index("offset", offset) for partition, offset in offsets.items()}


def check_indexes(partitions: object) -> list[int]:
    """Partitions of a topic, each once; the topic checks their bounds."""
    if not isinstance(partitions, Iterable) or isinstance(partitions, str | bytes):
        raise InvalidInput("partitions", repr(partitions)[:100], "it must be a list of partitions")
    found = dict.fromkeys(check_index("partitions", partition) for partition in partitions)
    if len(found) > PARTITIONS_MAX:
        raise InvalidInput("partitions", f"{len(found)} partitions", f"a topic has at most {PARTITIONS_MAX}")
    return list(found)


def check_byte_ranges(ranges: object) -> dict[int, tuple[int, int, int]]:
    """Ranges of partitions with a number of bytes each: start, end, bytes."""
    if not isinstance(ranges, Mapping) or not all(
        isinstance(bounds, Sequence) and len(bounds) == 3 for bounds in ranges.values()
    ):
        raise InvalidInput("ranges", repr(ranges)[:100], "it must map partitions to start, end and bytes")
    return {
        check_index("partition", partition): (
            check_whole("start", start, 0, SEQNO_MAX),
            check_whole("end", end, 0, SEQNO_MAX),
            check_whole("bytes", bytes_max, 1, SEQNO_MAX),
        )
        for partition, (start, end, bytes_max) in ranges.items()
    }


def check_staged(stages: object) -> list[Staged]:
    """Stages to be published, each once."""
    if not isinstance(stages, Sequence) or not all(isinstance(staged, Staged) for staged in stages):
        raise InvalidInput("stages", repr(stages)[:100], "it must be a list of results of stage()")
    for name, times in Counter(staged.stage for staged in stages).items():
        if times > 1:
            rule = f"it is named {times} times: name it once, or its rows would be written {times} times"
            raise InvalidInput("stages", repr(name)[:100], rule)
    return [
        Staged(check_id("stage", staged.stage), check_whole("rows", staged.rows, 0, SEQNO_MAX)) for staged in stages
    ]


def check_epoch(epoch: object) -> int:
    """Check the epoch that a producer was opened with."""
    return check_whole("epoch", epoch, 0, SEQNO_MAX)


def check_topics(topics: object, topics_max: int) -> list[str]:
    """The names of the topics that one request asks about."""
    if not isinstance(topics, Sequence) or isinstance(topics, str):
        raise InvalidInput("topics", repr(topics)[:100], "it must be a list of topic names")
    check_whole("number of topics", len(topics), 0, topics_max)
    return [check_topic_name(topic) for topic in topics]


def check_stages(stages: object) -> dict[str, list[Staged]]:
    """The stages of the topics of a transaction."""
    if not isinstance(stages, Mapping):
        raise InvalidInput("stages", repr(stages)[:100], "it must map topics to lists of results of stage()")
    check_whole("number of topics", len(stages), 0, TRANSACTION_TOPICS_MAX)
    return {check_topic_name(topic): check_staged(staged) for topic, staged in stages.items()}


def check_transaction_offsets(offsets: object) -> list[TransactionOffsets]:
    """What a transaction commits for groups."""
    if not isinstance(offsets, Sequence) or not all(isinstance(asked, TransactionOffsets) for asked in offsets):
        raise InvalidInput("offsets", repr(offsets)[:100], "it must be a list of TransactionOffsets")
    check_whole("number of groups", len(offsets), 0, TRANSACTION_TOPICS_MAX)
    for asked in offsets:
        check_group_name(asked.group)
        if isinstance(asked.member, str):
            check_id("member", asked.member)
        elif asked.member is not None:
            check_index("member", asked.member)
        if asked.generation is not None:
            check_whole("generation", asked.generation, 0, SEQNO_MAX)
    return [replace(asked, offsets=check_offsets(asked.offsets)) for asked in offsets]


def check_distinct(field: str, names: Iterable[object]) -> None:
    """Refuse what a transaction names twice, maybe spelled differently."""
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInput(field, repr(name)[:100], f"it is named {times} times: name it once")


def check_stage_names(stages: object) -> list[str]:
    """The names of some stages."""
    if not isinstance(stages, Sequence) or isinstance(stages, str):
        raise InvalidInput("stages", repr(stages)[:100], "it must be a list of stage names")
    return [check_id("stage", stage) for stage in stages]

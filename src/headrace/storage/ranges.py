"""Which offsets of a partition can be read."""

from __future__ import annotations

from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.storage.interface import OffsetRange


def check_range(topic: str, offsets: OffsetRange, partition: int, offset: int) -> int:
    """The end offset of the partition, or an error that names the valid range."""
    if not 0 <= partition < len(offsets.end):
        raise PartitionNotFound(topic, partition, len(offsets.end))
    start, end = int(offsets.start[partition]), int(offsets.end[partition])
    if not start <= offset <= end:
        raise OffsetOutOfRange(topic, partition, offset, start, end)
    return end

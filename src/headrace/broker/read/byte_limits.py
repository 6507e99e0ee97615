"""At which offset a range of a partition reaches a number of bytes, from the sizes of segments; no message is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.broker.topics.topic import Topic
from headrace.core.errors import PartitionNotFound
from headrace.core.topics.byte_limits import ByteRanges, offsets_within
from headrace.core.topics.retention import Piece
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.interface import OffsetRange, TopicLog


def stops_within(topic: Topic, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
    """For (start, end, bytes) of each partition: the offset at which the range reaches about that many bytes."""
    with topic.using() as log:
        offsets, pieces = log.offsets(), log.pieces()
        archived = _archived(log, offsets, pieces)
    for partition in wanted:
        if not 0 <= partition < len(offsets.end):
            raise PartitionNotFound(topic.record.name, partition, len(offsets.end))
    columns = np.array([(place, *bounds) for place, bounds in wanted.items()], np.int64).reshape(len(wanted), 4)
    ranges = ByteRanges(*(np.ascontiguousarray(column) for column in columns.T))
    stops = offsets_within([*archived, *pieces], offsets.start, ranges)
    return dict(zip(wanted, stops.tolist(), strict=True))


def _archived(log: TopicLog, offsets: OffsetRange, pieces: list[Piece]) -> list[Piece]:
    """What only the archive has, as one segment; its files are compressed, so they are no smaller than the log's."""
    if not isinstance(log, TieredLog) or log.view is None:
        return []
    start, files = log.inner.offsets().start, log.view.manifest.files
    in_files = sum(file.bytes for file in files) / max(1, sum(file.rows for file in files))
    in_log = sum(piece.bytes for piece in pieces) / max(1, int((offsets.end - start).sum()))
    return [Piece(int(max(in_files, in_log) * int((start - offsets.start).sum())), 0, start)]

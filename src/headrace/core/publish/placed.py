"""Rows that are placed ahead of their commit: partitions chosen, sorted; all that is left are their offsets.

    place_ahead(canonical batch, settings, partitions, turn) -> sorted rows, Places      when rows are staged
    plan_placed(sorted rows, Places, state, now) -> Commit                               when they are published

So a large commit of staged rows hashes and sorts nothing while it holds its topic. It is possible where the choice
needs nothing that only the commit knows: no seqnos, no payloads of a window, no links of sources. Rows that name their
own partitions are left to `plan` too: if partitions are added in between, all rows are placed again, and a partition
that a row named would be lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.publish.payload_window import NO_PAYLOADS
from headrace.core.publish.plan import assign_offsets, stored_rows
from headrace.core.publish.routing import choose_partitions
from headrace.core.publish.sources import NO_UPDATES, SourceTable
from headrace.core.publish.state import Commit, CommitKey, Directory, TopicState
from headrace.core.topics.settings import KeyHash, TopicSettings

_UNPLACED: Final = frozenset({"producer_id", "partition"})
_NO_SEQNOS: Final = np.zeros(0, np.int64)


class Places(NamedTuple):
    """Where sorted rows go: how many to which partition, of how many and by which hash of the key; no offsets yet."""

    partitions: int
    directory: Directory
    key_hash: KeyHash


class _Turn(NamedTuple):
    """What routing needs to know of a topic if no row has a source."""

    end_offsets: Int64s
    round_robin: int
    sources: SourceTable


def place_ahead(
    batch: pa.RecordBatch, settings: TopicSettings, partitions: int, turn: int
) -> tuple[pa.RecordBatch, Places] | None:
    """Sort a canonical batch by partition, or None if only its commit can; `turn` is where the round robin begins."""
    if settings.deduplication == "payload" or not _UNPLACED.isdisjoint(batch.schema.names):
        return None
    routing = _Turn(np.zeros(partitions, np.int64), turn, SourceTable())
    partition, _, _ = choose_partitions(batch, _NO_SEQNOS, None, routing, 0, settings.key_hash)
    order, directory = assign_offsets(partition, routing.end_offsets)
    return stored_rows(batch, order), Places(partitions, directory, settings.key_hash)


def plan_placed(
    rows: pa.RecordBatch, places: Places, state: TopicState, now_us: int, keys: tuple[CommitKey, ...] = ()
) -> Commit:
    """The commit of rows that were placed for as many partitions as the topic has now; all of them are written."""
    partition, counts = places.directory.partition, places.directory.rows
    directory = Directory(partition, state.end_offsets[partition], counts)
    time_us = max(now_us, state.last_time_us + 1)
    return Commit(state.next_number, time_us, rows, directory, state.round_robin, keys, NO_UPDATES, NO_PAYLOADS)


def may_stay(places: Places, state: TopicState, settings: TopicSettings) -> bool:
    """Whether the choice still holds: the same partitions, the same hash of the key, and no unique payloads."""
    chosen = (places.partitions, places.key_hash)
    return chosen == (state.partitions, settings.key_hash) and settings.deduplication != "payload"

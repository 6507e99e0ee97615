"""Which partition a message goes to: explicit before key before the source's link before round-robin.

The key chooses by FNV-1a 64 modulo partitions, bit for bit as cursus does, or by murmur2 as Kafka's clients do.
Rows without a key and without a source take the partitions in turn; the first such row of a source without a link takes
a turn for all of its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Bytes, Int64s, byte_rows, filled, partition_rows
from headrace.core.hashes.murmur2 import partitions_of
from headrace.core.publish.payload_window import Bools
from headrace.core.publish.sources import NO_LINK, NO_SOURCE, Int32s, RowSources, SourceTable, links_of
from headrace.core.topics.settings import KeyHash

# A row whose partition is not chosen, and what a receipt holds as partition and offset of a duplicate.
NOWHERE: Final = -1


class RoutingState(Protocol):
    """What routing needs to know of a topic."""

    @property
    def end_offsets(self) -> Int64s: ...

    @property
    def round_robin(self) -> int: ...

    @property
    def sources(self) -> SourceTable: ...


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys of a batch as bytes, and which rows have one; an empty key is no key."""

    data: Bytes
    starts: Int64s
    lengths: Int64s
    keyed: Bools

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> KeyRows:
        """The keys of a batch."""
        if "key" not in batch.schema.names:
            nothing = np.zeros(batch.num_rows, np.int64)
            return cls(np.zeros(0, np.uint8), nothing, nothing, nothing > 0)
        data, starts, lengths = byte_rows(batch.column("key"))
        return cls(data, starts, lengths, lengths > 0)


def choose_partitions(
    batch: pa.RecordBatch,
    seqno: Int64s,
    sources: RowSources | None,
    state: RoutingState,
    now_us: int,
    key_hash: KeyHash = "fnv1a",
) -> tuple[Int32s, int, Bools]:
    """The partition of every row, the round-robin counter after it, and which rows have a key."""
    keys = KeyRows.of(batch)
    by_key = partitions_of if key_hash == "murmur2" else partition_rows
    partitions, round_robin = len(state.end_offsets), state.round_robin
    is_explicit = "partition" in batch.schema.names
    if not is_explicit and batch.num_rows and keys.keyed.all():
        return by_key(keys.data, keys.starts, keys.lengths, partitions), round_robin, keys.keyed
    partition = _explicit(batch) if is_explicit else np.full(batch.num_rows, NOWHERE, np.int32)
    if is_explicit and not batch.column("partition").null_count:
        return partition, round_robin, keys.keyed
    choosing = keys.keyed & (partition == NOWHERE)
    if choosing.any():
        partition[choosing] = by_key(keys.data, keys.starts[choosing], keys.lengths[choosing], partitions)
    ticking = partition == NOWHERE
    if sources is None:
        return partition, _take_turns(partition, ticking, partitions, round_robin), keys.keyed
    _, link = state.sources.lookup(sources.sources, now_us)
    if is_explicit:
        link = _with_explicit_links(link, sources, seqno, partition, ~keys.keyed)
    open_rows = np.flatnonzero(ticking & (sources.code != NO_SOURCE))
    partition[open_rows] = link[sources.code[open_rows]]
    unlinked = open_rows[partition[open_rows] == NO_LINK]
    _, places = np.unique(sources.code[unlinked], return_index=True)
    first_of_source = unlinked[places]
    ticking &= sources.code == NO_SOURCE
    ticking[first_of_source] = True
    round_robin = _take_turns(partition, ticking, partitions, round_robin)
    link[sources.code[first_of_source]] = partition[first_of_source]
    partition[unlinked] = link[sources.code[unlinked]]
    return partition, round_robin, keys.keyed


def _explicit(batch: pa.RecordBatch) -> Int32s:
    """The partitions that rows name themselves."""
    return filled(batch.column("partition"), NOWHERE).copy()


def _with_explicit_links(link: Int32s, sources: RowSources, seqno: Int64s, partition: Int32s, unkeyed: Bools) -> Int32s:
    """The links, with those that rows of this batch make by naming a partition.

    The commit will link a source by the rule of `links_of`. Its rows that are still open must go to the same place, or
    the source would change its partition after its first batch.
    """
    still_open = np.int32(np.iinfo(np.int32).max)
    made = links_of(sources, seqno, np.where(partition == NOWHERE, still_open, partition), unkeyed)
    return np.where((link == NO_LINK) & (made != still_open), made, link)


def _take_turns(partition: Int32s, ticking: Bools, partitions: int, round_robin: int) -> int:
    """Give the ticking rows the next partitions in turn; the counter after it."""
    turns = int(np.count_nonzero(ticking))
    partition[ticking] = (round_robin + np.arange(turns)) % partitions
    return round_robin + turns

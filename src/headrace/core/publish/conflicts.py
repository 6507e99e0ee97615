"""Conflicts: a seqno that is sent again with another message than before.

A repeated seqno is normally a retry, and its message is dropped as a duplicate. If its message differs from the one
written with that seqno, it is no retry: two producers share an id, or one counts again from the start. It is not
written either, but its receipt says `conflict`, so that data is never dropped silently.

What is known is the last message of each source, the one with its highest seqno: in the log by a 64-bit digest, kept
beside that seqno, and in the batch that is being planned. An older message is not looked up: its repetition counts as a
duplicate, in the same batch too, so that the answer does not depend on how messages are put together.
Digests are made per source and per repeated message, never for each message of a batch.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import Int64s, byte_rows
from headrace.core.publish.sources import NO_DIGEST, Bools, RowSources, SourceTable, ranks_by_source

_DIGEST_BYTES: Final = 8


def digests_of(batch: pa.RecordBatch, rows: Int64s) -> Int64s:
    """The digest of some rows: of key and value. Attributes may differ in a retry (traces do), so they do not count."""
    values, keys = _slices(batch, "value", rows), _slices(batch, "key", rows)
    absent = np.asarray(batch.column("value").is_null())[rows].tolist()
    digests = b"".join(_digest(*row) for row in zip(values, keys, absent, strict=True))
    # Zero means unknown.
    return np.where((found := np.frombuffer(digests, "<i8")) == NO_DIGEST, 1, found)


def _slices(batch: pa.RecordBatch, name: str, rows: Int64s) -> list[memoryview]:
    """The bytes of some rows of a column; no column and nulls are empty."""
    if name not in batch.schema.names:
        return [memoryview(b"")] * len(rows)
    data, starts, lengths = byte_rows(batch.column(name))
    view = data.data
    begins = starts[rows]
    return [view[begin:end] for begin, end in zip(begins.tolist(), (begins + lengths[rows]).tolist(), strict=True)]


def digest_of(value: bytes | None, key: bytes) -> int:
    """The digest of one message."""
    digest = int.from_bytes(_digest(value or b"", key, value is None), "little", signed=True)
    return 1 if digest == NO_DIGEST else digest


def _digest(value: bytes | memoryview, key: bytes | memoryview, is_null: bool) -> bytes:
    digest = hashlib.blake2b(value, digest_size=_DIGEST_BYTES, person=b"null" if is_null else b"")
    digest.update(key)
    # The length separates the key from what follows.
    digest.update(len(key).to_bytes(4, "little"))
    return digest.digest()


def conflicting(
    batch: pa.RecordBatch, sources: RowSources, seqno: Int64s, repeated: Int64s, table: SourceTable, now_us: int
) -> Int64s:
    """Those of the repeated rows that differ from the message written with their seqno, as far as that is known."""
    highest, _ = table.lookup(sources.sources, now_us)
    known = table.digests(sources.sources)
    is_latest = _latest(sources.code, seqno)[repeated] & (seqno[repeated] >= highest[sources.code[repeated]])
    latest = repeated[is_latest]
    code = sources.code[latest]
    last = latest[(seqno[latest] == highest[code]) & (known[code] != NO_DIGEST)]
    again = last[digests_of(batch, last) != known[sources.code[last]]]
    first = _first_of(sources.code, seqno)[latest]
    # The first row with this seqno is written if it is not repeated itself.
    is_here = ~np.isin(first, repeated)
    here, first = latest[is_here], first[is_here]
    return np.concatenate([again, here[_differ(batch, here, first)]])


def _latest(code: Int64s, seqno: Int64s) -> Bools:
    """Which rows have a seqno as high as any before them of their source."""
    order, ranks = ranks_by_source(code, seqno)
    result = np.empty(len(code), bool)
    result[order] = ranks == np.maximum.accumulate(ranks)
    return result


def _differ(batch: pa.RecordBatch, rows: Int64s, others: Int64s) -> Bools:
    """Which rows have another key or value than the row beside them."""
    result = np.zeros(len(rows), bool)
    for name in {"key", "value"}.intersection(batch.schema.names) if len(rows) else ():
        column = pc.fill_null(batch.column(name), b"")
        result |= np.asarray(pc.not_equal(column.take(pa.array(rows)), column.take(pa.array(others))))
        if name == "value":
            absent = np.asarray(batch.column(name).is_null())
            result |= absent[rows] != absent[others]
    return result


def _first_of(code: Int64s, seqno: Int64s) -> Int64s:
    """For each row the first row that has the same source and seqno."""
    order = np.lexsort((seqno, code))
    begins = np.ones(len(order), bool)
    begins[1:] = (code[order][1:] != code[order][:-1]) | (seqno[order][1:] != seqno[order][:-1])
    first = np.empty(len(order), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    return first

"""Conflicts: a seqno that comes again with another message than before.

A repeated seqno is normally a retry, and its message is dropped as a duplicate. If its message differs from the one
written with that seqno, it is no retry: two producers share an id, or one counts again from the start. It is not
written either, but its receipt says `conflict`, so that data is never dropped in silence.

What is known: of each source a 64-bit digest of the message with its highest seqno, kept beside that seqno, and all
messages of the batch that is being planned. An older message is not looked up in the log: its repetition counts as a
duplicate. Digests are made per source and per repeated message, never for each message of a batch.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashing import Int64s
from headrace.core.publish.sources import NO_DIGEST, Bools, RowSources, SourceTable

_DIGEST_BYTES: Final = 8


def digests_of(batch: pa.RecordBatch, rows: Int64s) -> Int64s:
    """The digest of some rows: of key and value. Attributes may differ in a retry (traces do), so they do not count."""
    values = batch.column("value")
    keys = batch.column("key") if "key" in batch.schema.names else None
    digests = np.empty(len(rows), np.int64)
    for place, row in enumerate(rows.tolist()):
        key = b"" if keys is None else keys[row].as_py() or b""
        # The length says where the key ends; no key and an empty one are the same.
        digest = hashlib.blake2b(len(key).to_bytes(4, "little"), digest_size=_DIGEST_BYTES)
        digest.update(key)
        digest.update(values[row].as_buffer())
        digests[place] = int.from_bytes(digest.digest(), "little", signed=True)
    # Zero says that nothing is known.
    digests[digests == NO_DIGEST] = 1
    return digests


def conflicting(
    batch: pa.RecordBatch, sources: RowSources, seqno: Int64s, repeated: Int64s, table: SourceTable, now_us: int
) -> Int64s:
    """Those of the repeated rows that differ from the message written with their seqno, as far as that is known."""
    highest, _ = table.lookup(sources.sources, now_us)
    known = table.digests(sources.sources)
    code = sources.code[repeated]
    is_last = (seqno[repeated] == highest[code]) & (known[code] != NO_DIGEST)
    last = repeated[is_last]
    again = last[digests_of(batch, last) != known[sources.code[last]]]
    first = _first_of(sources.code, seqno)[repeated]
    # The first row with this seqno is written if it is not repeated itself.
    is_here = ~np.isin(first, repeated)
    here, first = repeated[is_here], first[is_here]
    return np.concatenate([again, here[_differ(batch, here, first)]])


def _differ(batch: pa.RecordBatch, rows: Int64s, others: Int64s) -> Bools:
    """Which rows have another key or value than the row beside them."""
    result = np.zeros(len(rows), bool)
    for name in {"key", "value"}.intersection(batch.schema.names) if len(rows) else ():
        column = pc.fill_null(batch.column(name), b"")
        result |= np.asarray(pc.not_equal(column.take(pa.array(rows)), column.take(pa.array(others))))
    return result


def _first_of(code: Int64s, seqno: Int64s) -> Int64s:
    """For each row the first row that has the same source and seqno."""
    order = np.lexsort((seqno, code))
    begins = np.ones(len(order), bool)
    begins[1:] = (code[order][1:] != code[order][:-1]) | (seqno[order][1:] != seqno[order][:-1])
    first = np.empty(len(order), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    return first

"""A digest of rows that does not depend on their order or on how they are divided into batches.

Digests of batches add up to the digest of all their rows: tasks compute them, the driver adds them. Whole Arrow columns
are hashed, no row is looked at in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import UInt64s, fnv1a64, fnv1a64_of, splitmix64

DIGEST_BITS: Final = 64

_NULL: Final = np.uint64(fnv1a64_of(b"null"))


def digest_of(rows: pa.RecordBatch) -> int:
    """The digest of rows: of the names and values of all their columns."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in sorted(rows.schema.names):
        hashes = splitmix64(splitmix64(hashes ^ np.uint64(fnv1a64_of(name.encode()))) ^ _hashes(rows.column(name)))
    return int(np.add.reduce(splitmix64(hashes + _NULL)))


def sum_of(digests: Iterable[int]) -> int:
    """The digest of the rows of several batches."""
    return sum(digests) % (1 << DIGEST_BITS)


def _hashes(column: pa.Array) -> UInt64s:
    """A hash of each value; null is unlike empty and zero."""
    if pa.types.is_map(column.type):
        hashes = _hashes_of_maps(column)
    elif pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        whole = pc.fill_null(column.cast(pa.int64()), 0)
        hashes = splitmix64(whole.to_numpy(zero_copy_only=False).view(np.uint64))
    else:
        hashes = fnv1a64(column.cast(pa.binary()))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes) if column.null_count else hashes


def _hashes_of_maps(column: pa.MapArray) -> UInt64s:
    """The sum of the entries of each map: their order means nothing."""
    entries = splitmix64(splitmix64(_hashes(column.keys)) ^ _hashes(column.items))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    bounds = column.offsets.to_numpy(zero_copy_only=False)
    return splitmix64(sums[bounds[1:]] - sums[bounds[:-1]])

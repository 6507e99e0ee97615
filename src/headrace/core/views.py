"""Arrow views: columns of bytes and text whose rows refer to data elsewhere, some to the same."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VIEW_TYPES: Final = frozenset({pa.string_view(), pa.binary_view()})


def bytes_in(column: pa.Array) -> int:
    """The size of the values of a column of bytes or text."""
    if column.type not in VIEW_TYPES:
        return pc.sum(pc.binary_length(column)).as_py() or 0
    # A view is sixteen bytes, and the first four are its length.
    views = np.frombuffer(column.buffers()[1], np.int32, 4 * len(column), 16 * column.offset)
    return int(views[::4].sum(where=column.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64))


def without_views_of_nulls(column: pa.Array) -> pa.Array:
    """The same with empty views behind its nulls: validation skips those, but casting follows them."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    bitmap, buffer, *data = column.buffers()
    views = np.frombuffer(buffer, np.int64, 2 * len(column), 16 * column.offset).reshape(-1, 2).copy()
    views[~valid] = 0
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [bitmap, pa.py_buffer(views), *data])

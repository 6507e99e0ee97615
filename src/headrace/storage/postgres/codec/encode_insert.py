"""Encodes the rows of a small commit as one INSERT statement, which is sent together with others.

Every column is an array literal. The text has only decimal and hexadecimal digits, so nothing needs to be quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import Int64s, byte_rows
from headrace.core.publish.state import Commit
from headrace.storage.postgres.codec.encode_copy import FIXED_COLUMNS, TABLE_NAMES
from headrace.storage.postgres.log.topic_row import array

_NUMBERS: Final = frozenset({"created_at", "seqno"})


def insert_statement(table: str, commit: Commit, bytes_before: Int64s) -> str:
    """The statement that inserts the rows of a commit into a table, given by its quoted name."""
    rows, directory = commit.rows, commit.directory
    offsets = np.arange(rows.num_rows) + np.repeat(directory.first_offset - directory.first_row, directory.rows)
    names = [name for name in rows.schema.names if name != "value"]
    columns = [*FIXED_COLUMNS, *(TABLE_NAMES.get(name, name) for name in names)]
    arrays = [
        f"'{array(np.repeat(directory.partition, directory.rows))}'::integer[]",
        f"'{array(offsets)}'::bigint[]",
        f"array_fill({commit.time_us}::bigint, ARRAY[{rows.num_rows}])",
        f"'{array(bytes_before)}'::bigint[]",
        _bytes(rows.column("value")),
        *(_numbers(rows.column(name)) if name in _NUMBERS else _bytes(rows.column(name)) for name in names),
    ]
    named = ", ".join(f'"{column}"' for column in columns)
    return f"INSERT INTO {table} ({named}) SELECT * FROM unnest({', '.join(arrays)})"


def _bytes(column: pa.Array) -> str:
    data, starts, lengths = byte_rows(column)
    digits = data.tobytes().hex()
    bounds = zip((2 * starts).tolist(), (2 * (starts + lengths)).tolist(), strict=True)
    cells = [f'"\\\\x{digits[start:end]}"' for start, end in bounds]
    return f"'{{{','.join(_with_nulls(column, cells))}}}'::bytea[]"


def _numbers(column: pa.Array) -> str:
    numbers = np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).tolist()
    return f"'{{{','.join(_with_nulls(column, list(map(str, numbers))))}}}'::bigint[]"


def _with_nulls(column: pa.Array, cells: list[str]) -> Sequence[str]:
    if not column.null_count:
        return cells
    valid = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [cell if is_valid else "NULL" for cell, is_valid in zip(cells, valid, strict=True)]

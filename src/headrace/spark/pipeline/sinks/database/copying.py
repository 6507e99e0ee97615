"""Arrow columns as the CSV that COPY reads, and what a task does with it.

Whole columns are written by Arrow. NULL is nothing, and an empty text is quoted, as PostgreSQL reads them.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.extras import needing

# The first column of a staging table: which attempt of a task wrote a row.
PART: Final = "headrace_part"
_COPIED: Final = pa.schema([("part", pa.string()), ("rows", pa.int64())])
_OPTIONS: Final = csv.WriteOptions(include_header=False, quoting_style="needed")


def copied(database: str, statement: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task: copy its rows by this statement, in one transaction, and say under which name and how many."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with needing("postgres"):
            import psycopg
        part, rows = uuid.uuid4().hex, 0
        with (
            psycopg.connect(database, client_encoding="utf8") as connection,
            connection.cursor() as cursor,
            cursor.copy(statement.encode()) as target,
        ):
            for batch in batches:
                if batch.num_rows:
                    target.write(csv_of(batch, part))
                    rows += batch.num_rows
        yield pa.record_batch([pa.array([part]), pa.array([rows])], schema=_COPIED)

    return copy


def csv_of(rows: pa.RecordBatch, part: str) -> bytes:
    """The rows as CSV, behind the name of a part."""
    columns = [_hexadecimal(column) if _is_binary(column.type) else column for column in rows.columns]
    parts = pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int8), pa.array([part])).cast(pa.string())
    written = io.BytesIO()
    table = pa.Table.from_arrays([parts, *columns], names=[PART, *(f"c{number}" for number in range(len(columns)))])
    csv.write_csv(table, written, _OPTIONS)
    return written.getvalue()


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _hexadecimal(column: pa.Array) -> pa.Array:
    r"""Bytes as PostgreSQL reads them: \x and two digits for each.

    >>> _hexadecimal(pa.array([b"az", None, b""])).to_pylist()
    ['\\x617a', None, '\\x']
    """
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    content = column.buffers()[2]
    digits = (content.slice(offsets[0], offsets[-1] - offsets[0]) if content else pa.py_buffer(b"")).to_pybytes().hex()
    doubled = pa.py_buffer(((offsets - offsets[0]) * 2).tobytes())
    texts = pa.LargeStringArray.from_buffers(len(column), doubled, pa.py_buffer(digits.encode()))
    prefixed = pc.binary_join_element_wise(pa.scalar("\\x", pa.large_string()), texts, pa.scalar("", pa.large_string()))
    return pc.if_else(column.is_valid(), prefixed, pa.scalar(None, pa.large_string()))

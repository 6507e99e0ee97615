"""Values as typed columns: the one definition of what a row of a table has beside its raw value.

The archiver, and every reader of what is not in the archive in this form yet, get the columns from here: a row has the
same ones wherever it is read. Values are decoded by their codecs first, and the header of a schema registry is cut off.
Memory is bounded: some rows at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.codecs.columns import decode_known
from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_CELLS_MAX, VALUE_SLICE_BYTES, VALUE_SLICE_ROWS
from headrace.core.values.avro.rows import AvroRows
from headrace.core.values.framing import unframe
from headrace.core.values.json import JsonRows
from headrace.core.values.schema import ValueSchema, parse_value_schema
from headrace.core.values.size import cells_of_item, cells_of_row

_UNDECODABLE: Final = "the value cannot be decoded by its codec"


class ValueParser:
    """Makes columns of values by one schema. Thread-safe."""

    def __init__(self, schema: ValueSchema) -> None:
        self.schema = schema
        self.columns = schema.columns()
        self._rows = JsonRows(schema.fields) if schema.format == "json" else AvroRows(msgspec.json.decode(schema.text))
        # What is parsed at once; an item of a list has at least two bytes of JSON, one of Avro.
        self._slice_rows = min(VALUE_SLICE_ROWS, VALUE_CELLS_MAX // cells_of_row(schema.fields))
        items_max = VALUE_CELLS_MAX // max(1, cells_of_item(schema.fields))
        self._slice_bytes = min(VALUE_SLICE_BYTES, items_max * (2 if schema.format == "json" else 1))

    def parse(self, values: pa.Array, codecs: pa.Array | None = None) -> pa.RecordBatch:
        """The columns of values, row by row those of the values given."""
        return pa.concat_batches([*self.slices(values, codecs), pa.RecordBatch.from_pylist([], self.columns)])

    def slices(self, values: pa.Array, codecs: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        """The same, some rows at a time."""
        lengths: Any = pc.fill_null(pc.binary_length(values), 0)
        ends = np.cumsum(np.asarray(lengths), dtype=np.int64)
        begin = 0
        while begin < len(values):
            before = int(ends[begin - 1]) if begin else 0
            fitting = int(np.searchsorted(ends, before + self._slice_bytes, side="right")) - begin
            rows = min(max(fitting, 1), self._slice_rows)
            part = values.slice(begin, rows)
            decoded, faults = _decoded(part, None if codecs is None else codecs.slice(begin, rows), self._slice_bytes)
            if self.schema.framing is not None:
                decoded, unframed = unframe(self.schema.framing, decoded)
                faults = unframed | faults
            yield self._batch(decoded, faults)
            begin += len(decoded)

    def _batch(self, values: pa.Array, faults: dict[int, str]) -> pa.RecordBatch:
        columns, errors = self._rows.parse(values)
        for row, fault in faults.items():
            errors[row] = fault
        return pa.RecordBatch.from_arrays([*columns, pa.array(errors, pa.string())], schema=self.columns)


def _decoded(values: pa.Array, codecs: pa.Array | None, column_bytes_max: int) -> tuple[pa.Array, dict[int, str]]:
    """The first of the values decoded, one at least; null, with the reason, where a codec does not accept them."""
    if codecs is None or codecs.null_count == len(codecs):
        return values, {}
    try:
        known = decode_known(values, codecs, column_bytes_max=column_bytes_max)
    except InvalidInput as error:
        # The library of a codec is missing on this machine, and the first value needs it.
        return pa.nulls(1, pa.binary()), {0: str(error)}
    faults = {
        fault.row: f"{_UNDECODABLE} {codecs[fault.row].as_py()}" for fault in known.faults if fault.row < known.rows
    }
    if not faults:
        return known.values, {}
    is_wrong = np.zeros(known.rows, bool)
    is_wrong[list(faults)] = True
    return pc.if_else(pa.array(is_wrong), pa.scalar(None, pa.binary()), known.values), faults


@functools.lru_cache(maxsize=256)
def parser_of(text: str) -> ValueParser:
    """The parser of a schema by its text."""
    return ValueParser(parse_value_schema(text))

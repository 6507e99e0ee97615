"""Avro: values in its binary encoding as columns.

A value is one record, without the schema. Values of a schema that has since grown end before the fields that were
added: these are null. A value of a newer schema has more bytes than this one takes, and does not fit. Values that are
whole records without long lists are decoded by columns (`flat`). Others are judged one by one (`walk`), decoded by
fastavro (`pip install "headrace[avro]"`), and become columns all at once; both ways decode a value alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.limits import VALUE_CELLS_MAX
from headrace.core.values.arrays import fitting_columns_of
from headrace.core.values.avro.flat import FlatRows, is_flat
from headrace.core.values.avro.schema import avro_record, library
from headrace.core.values.avro.walk import RecordWalk, TooManyItems
from headrace.core.values.size import TOO_MANY_ITEMS, cells_of_item

_NO_RECORD: Final = "the value is not a record of the schema"


class AvroRows:
    """Decodes values of one schema."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        fastavro = library()
        record = avro_record(given)
        fields, plain = record.fields, record.plain
        self._read = fastavro.schemaless_reader
        self._shape = record.shape
        item_cells = cells_of_item(fields)
        self._items_max = VALUE_CELLS_MAX // max(1, item_cells)
        self._walk = RecordWalk(plain)
        self._flat = FlatRows(plain, record.shape, item_cells) if is_flat(record.shape) else None
        self._whole = fastavro.parse_schema(plain)
        # What every value has at least, and the optional fields after that: a value may end before any of them.
        self._least = max(1, 1 + max((place for place, field in enumerate(fields) if field.is_required), default=0))
        self._begin = fastavro.parse_schema({**plain, "fields": plain["fields"][: self._least]})
        self._rest = [(each["name"], fastavro.parse_schema(each["type"])) for each in plain["fields"][self._least :]]

    def parse(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of the fields, and why each value does not fit, or None."""
        flat = None if self._flat is None else self._flat.parse(values)
        if flat is None:
            return self._parse_each(values)
        columns, is_good = flat
        if is_good.all():
            return columns, [None] * len(values)
        others, told = self._parse_each(values.filter(pa.array(~is_good)))
        # Rows of both in the order of the values.
        places = np.where(is_good, np.cumsum(is_good) - 1, is_good.sum() + np.cumsum(~is_good) - 1)
        both = [pa.concat_arrays(pair).take(pa.array(places)) for pair in zip(columns, others, strict=True)]
        errors: list[str | None] = [None] * len(values)
        for row, error in zip(np.flatnonzero(~is_good).tolist(), told, strict=True):
            errors[row] = error
        return both, errors

    def _parse_each(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        judged = [self._row(value) for value in values.to_pylist()]
        columns, faults = fitting_columns_of(self._shape, [row for row, _ in judged])
        return columns, [faults.get(place, error) for place, (_, error) in enumerate(judged)]

    def _row(self, value: bytes | None) -> tuple[dict[str, Any], str | None]:
        absent: dict[str, Any] = self._shape.absent
        if value is None:
            return absent, "the value is null"
        try:
            count = self._walk.fields(value, self._items_max)
            return (absent, _NO_RECORD) if count < self._least else (self._decoded(value, count), None)
        except TooManyItems:
            return absent, TOO_MANY_ITEMS
        except (ArithmeticError, EOFError, LookupError, TypeError, ValueError):
            return absent, _NO_RECORD

    def _decoded(self, value: bytes, count: int) -> dict[str, Any]:
        """A record of the first fields; those that the schema got later are absent."""
        rest = self._rest[: count - self._least]
        source = BytesIO(value)
        if len(rest) == len(self._rest):
            whole: dict[str, Any] = self._read(source, self._whole)
            return whole
        row = {**self._shape.absent, **self._read(source, self._begin)}
        for name, schema in rest:
            row[name] = self._read(source, schema)
        return row

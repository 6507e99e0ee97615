"""Values decoded by the schema of their topic, as JSON text that lists, searches and panels show. Pure.

Values of Avro, and those behind the header of a schema registry, are bytes that nobody can read. Others are JSON
already: of them only whether they fit is of interest. Thread-safe.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headrace.console.messages.draft import typed
from headrace.core.errors import HeadraceError
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import ValueSchema, parse_value_schema

# Larger values are shown as they are, and so is what is above this for all values of a list.
_VALUE_BYTES_MAX: Final = 64 << 10
_LIST_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True)
class Readable:
    """A value as JSON text, or None where it stays as it is; and why it does not fit the schema, if it does not."""

    text: str | None = None
    problem: str | None = None


class TypedValues:
    """The values of one topic."""

    def __init__(self, schema: str | None) -> None:
        self.problem: str | None = None
        self._parser: ValueParser | None = None
        if schema is None:
            return
        try:
            self._parser = _parser(schema)
        except HeadraceError as error:
            # Avro is an extra, which the machine of the console may not have.
            self.problem = str(error)

    @property
    def is_needed(self) -> bool:
        """Whether values are bytes that only the schema makes readable."""
        return self._parser is not None and _is_encoded(self._parser.schema)

    def decode(self, value: bytes | None) -> Readable:
        """One value, whatever its size."""
        if self._parser is None or value is None:
            return Readable(problem=None if value is None else self.problem)
        return _rows(self._parser, pa.array([value], pa.binary()))[0]

    def previews(self, values: Sequence[bytes | None]) -> list[str | None]:
        """The values of a list, where they are bytes and small."""
        found: list[str | None] = [None] * len(values)
        if self._parser is None or not self.is_needed:
            return found
        places, total = list[int](), 0
        for place, value in enumerate(values):
            if value is not None and len(value) <= _VALUE_BYTES_MAX and total + len(value) <= _LIST_BYTES_MAX:
                places.append(place)
                total += len(value)
        decoded = _rows(self._parser, pa.array([values[place] for place in places], pa.binary()))
        for place, each in zip(places, decoded, strict=True):
            found[place] = each.text
        return found

    def readable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch whose values a search can compare by field."""
        if self._parser is None or not self.is_needed or not batch.num_rows:
            return batch
        values = batch.column("value")
        texts = [
            raw if each.text is None else each.text.encode()
            for raw, each in zip(values.to_pylist(), _rows(self._parser, values), strict=True)
        ]
        place = batch.schema.get_field_index("value")
        return batch.set_column(place, batch.schema.field(place), pa.array(texts, values.type))


@lru_cache(maxsize=64)
def _parser(schema: str) -> ValueParser:
    return ValueParser(parse_value_schema(schema))


def _is_encoded(schema: ValueSchema) -> bool:
    return schema.format == "avro" or schema.framing is not None


def _rows(parser: ValueParser, values: pa.Array) -> list[Readable]:
    """Each value; JSON text only of those that are not JSON as they are."""
    columns = parser.parse(values)
    problems = columns.column(columns.num_columns - 1).to_pylist()
    if not _is_encoded(parser.schema):
        return [Readable(problem=problem) for problem in problems]
    names = [each.name for each in parser.schema.fields]
    fields = [columns.column(place).to_pylist() for place in range(len(names))]
    return [
        Readable(None if problem else _json(dict(zip(names, row, strict=True))), problem)
        for problem, *row in zip(problems, *fields, strict=True)
    ]


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=_shown)


def _shown(value: Any) -> str:
    """Times, decimals and bytes as text."""
    return typed(value) if isinstance(value, bytes) else str(value)

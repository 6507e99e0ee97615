"""The schema of a topic's values: which columns they become, the same in the archive, in Spark and in DuckDB.

A schema is JSON, and says by itself whether values are JSON or Avro:

    {"type": "object", "required": ["id"], "properties": {      a JSON Schema of an object: `json_schema`
        "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "more": {}}}
    {"type": "record", "name": "order", "fields": [             an Avro schema of a record: `avro.schema`
        {"name": "id", "type": "long"}, {"name": "at", "type": ["null", "string"]}]}

Each property is a column beside the message's own; one with the name of one of these is called `value_<name>`.
`value_error` says why a value does not fit: all its columns are NULL then, and the raw value is kept.

Two keys of the whole schema say what is before each value: `"framing": "registry"` is the header that clients of a
schema registry write, and `"schema_ids"` the ids that it may have (`framing`). They are in the schema and not beside it
because its text is all that a file of the archive, or a task of Spark, knows of how values are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SCHEMA_BYTES_MAX
from headrace.core.values.framing import Framing, framing_of
from headrace.core.values.json_schema import json_type
from headrace.core.values.types import (
    ERROR_COLUMN,
    SETTING,
    ObjectOf,
    ValueField,
    arrow_type,
    check_count,
    inner_type,
    wrong,
)

# Under which files of the archive name, in their footers, the schema that their columns are of.
FOOTER_KEY: Final = b"headrace.value_schema"
_FORBIDDEN: Final = frozenset(['"', "\\", *map(chr, range(32))])


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """A schema: the format of values, their fields, and its text in one form whatever it was given as.

    framing: what is before each value; None if nothing is.
    """

    format: Literal["json", "avro"]
    fields: tuple[ValueField, ...]
    text: str
    framing: Framing | None = None

    def columns(self) -> pa.Schema:
        """The columns of values, and that of errors; all may be null."""
        return pa.schema([(field.column, arrow_type(field.type)) for field in self.fields] + [(ERROR_COLUMN, _STRING)])


_STRING: Final = pa.string()


def parse_value_schema(given: str | Mapping[str, Any]) -> ValueSchema:
    """The schema in a JSON text, or in values of Python; an error names the place in it."""
    if isinstance(given, str):
        return _parsed(given)
    try:
        return _parsed(msgspec.json.encode(given).decode())
    except (TypeError, UnicodeError) as error:
        raise InvalidInput(SETTING, repr(given)[:100], f"it cannot be written as JSON: {error}") from None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ValueSchema:
    # Half of a surrogate pair has bytes too; it is refused below.
    size = len(text.encode(errors="surrogatepass"))
    if size > VALUE_SCHEMA_BYTES_MAX:
        raise InvalidInput(SETTING, f"{size} bytes", f"it may have {VALUE_SCHEMA_BYTES_MAX}")
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        rule = f"it must be a JSON Schema of an object, or an Avro schema of a record: {error}"
        raise InvalidInput(SETTING, repr(text)[:100], rule) from None
    framing, whole = framing_of(given), msgspec.json.encode(given).decode()
    if given.get("type") == "record":
        from headrace.core.values.avro.schema import avro_fields

        schema = ValueSchema("avro", avro_fields(given), whole, framing)
    else:
        parsed = json_type(given, "", 0)
        if not isinstance(parsed, ObjectOf):
            rule = 'it must describe an object with properties, {"type": "object", …}, or be an Avro schema of a record'
            raise InvalidInput(SETTING, repr(text)[:100], rule)
        schema = ValueSchema("json", parsed.fields, whole, framing)
    _check_names(schema.fields)
    return schema


def _check_names(fields: tuple[ValueField, ...]) -> None:
    # By their whole paths: a name with a dot may look like a field of an object, and engines find columns by paths.
    found: set[str] = set()
    for place, names in _names(fields, ""):
        for name in names:
            path = f"{place}.{name}".removeprefix(".").lower()
            if not is_column_name(name):
                rule = "a name must not be empty, and have no quotation marks, backslashes and control characters"
                raise wrong(place, name, rule)
            if path in found:
                raise wrong(place, name, "two fields become this column: names are case-insensitive")
            found.add(path)
    check_count(sum(len(names) for _, names in _names(fields, "")))


def is_column_name(name: str) -> bool:
    """Whether a field may have this name."""
    return bool(name) and not _FORBIDDEN.intersection(name)


def _names(fields: tuple[ValueField, ...], place: str) -> Iterator[tuple[str, list[str]]]:
    """The names of columns, and then of the fields of each object within."""
    yield place, [each.name if place else each.column for each in fields]
    for each in fields:
        kind = inner_type(each.type)
        if isinstance(kind, ObjectOf):
            yield from _names(kind.fields, f"{place}.{each.name}".lstrip("."))

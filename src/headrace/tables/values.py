"""The schema of a topic's JSON values: which columns they become, in Spark and in DuckDB alike.

A schema is a JSON Schema of an object, as far as columns go: `type`, `format` (`date-time`, `date`), `properties`,
`items` and `required`. Each property is a column beside the message's own; one with the name of one of these is called
`value_<name>`. `value_error` says why a value does not fit: all its columns are NULL then, and the raw value is kept.

    {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
     "required": ["id"]}

A value fits if it is a JSON object, has every required property, and each property has its type or is null. Properties
that the schema does not name are passed over, so a schema may grow. Anything fits `string`: a number, an object or
a list becomes its text, as in pipelines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, TypeAlias

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.messages import READ_SCHEMA

ERROR_COLUMN: Final = "value_error"
_FIELD: Final = "value_schema"
_TAKEN: Final = frozenset({*READ_SCHEMA.names, "topic", "message", ERROR_COLUMN})
_SCALARS: Final = {
    "integer": ("BIGINT", "BIGINT"),
    "number": ("DOUBLE", "DOUBLE"),
    "string": ("STRING", "VARCHAR"),
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "date-time": ("TIMESTAMP", "TIMESTAMPTZ"),
    "date": ("DATE", "DATE"),
}
_KNOWN: Final = ("integer", "number", "string", "boolean", "object", "array")


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array, of items of one type."""

    items: ValueType


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object with these properties."""

    fields: tuple[ValueField, ...]


# A scalar is called as in the schema, or by its format.
ValueType: TypeAlias = str | ListOf | ObjectOf


@dataclass(frozen=True, slots=True)
class ValueField:
    """A property: its name in the JSON, and whether every value must have it."""

    name: str
    type: ValueType
    is_required: bool

    @property
    def column(self) -> str:
        """The column it becomes."""
        return f"value_{self.name}" if self.name.lower() in _TAKEN else self.name


def parse_value_schema(given: str | Mapping[str, Any]) -> ObjectOf:
    """The schema in a JSON text, or in values of Python."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InvalidInput(_FIELD, repr(given)[:100], f"it must be a JSON Schema of an object: {error}") from None
    parsed = _type(given, "")
    if not isinstance(parsed, ObjectOf):
        raise InvalidInput(_FIELD, repr(given)[:100], 'it must describe an object: {"type": "object", …}')
    columns = [field.column.lower() for field in parsed.fields]
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidInput(_FIELD, column, "two properties become this column: names are case-insensitive")
    return parsed


def _type(given: Any, place: str) -> ValueType:
    shown = place or "the schema"
    if not isinstance(given, Mapping):
        raise InvalidInput(_FIELD, repr(given)[:100], f"{shown} must be an object with a type")
    named = given.get("type")
    if isinstance(named, list):
        named = next((each for each in named if each != "null"), None)
    if named not in _KNOWN:
        raise InvalidInput(_FIELD, repr(named)[:100], f"the type of {shown} must be one of {', '.join(_KNOWN)}")
    if named == "array":
        return ListOf(_type(given.get("items", {"type": "string"}), f"{place}[]"))
    if named != "object":
        has_format = named == "string" and given.get("format") in ("date-time", "date")
        return str(given["format"] if has_format else named)
    properties, required = given.get("properties"), given.get("required", [])
    if not isinstance(properties, Mapping) or not properties:
        raise InvalidInput(_FIELD, repr(properties)[:100], f"{shown} needs properties, at least one")
    return ObjectOf(
        tuple(
            ValueField(str(name), _type(each, f"{place}.{name}".lstrip(".")), name in required)
            for name, each in properties.items()
        )
    )


def spark_type(kind: ValueType) -> str:
    """A type in Spark's SQL."""
    if isinstance(kind, ListOf):
        return f"ARRAY<{spark_type(kind.items)}>"
    if isinstance(kind, ObjectOf):
        return f"STRUCT<{', '.join(f'{_in_spark(field.name)}: {spark_type(field.type)}' for field in kind.fields)}>"
    return _SCALARS[kind][0]


def spark_schema(schema: ObjectOf) -> str:
    """A schema in Spark's SQL."""
    fields = ((field, " NOT NULL" if field.is_required else "") for field in schema.fields)
    return ", ".join(f"{_in_spark(field.name)} {spark_type(field.type)}{rule}" for field, rule in fields)


def _in_spark(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def duckdb_structure(kind: ValueType) -> Any:
    """A type as DuckDB's `json_transform` takes it."""
    if isinstance(kind, ListOf):
        return [duckdb_structure(kind.items)]
    if isinstance(kind, ObjectOf):
        return {field.name: duckdb_structure(field.type) for field in kind.fields}
    return duckdb_type(kind)


def duckdb_type(kind: str) -> str:
    """A scalar in DuckDB's SQL."""
    return _SCALARS[kind][1]


def infer_value_schema(values: Iterable[bytes | None]) -> dict[str, Any]:
    """The JSON Schema that all sample values fit which are JSON objects."""
    samples: list[dict[str, Any]] = []
    for value in values:
        try:
            samples.append(msgspec.json.decode(value or b"", type=dict[str, Any]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    if not samples:
        rule = "none of the messages that were looked at is a JSON object: a schema cannot be inferred"
        raise InvalidInput("topic", "without JSON objects", rule)
    return _object(samples)


def _object(samples: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in sample.items():
            found.setdefault(name, []).append(value)
    properties = {name: _inferred([value for value in values if value is not None]) for name, values in found.items()}
    required = [name for name, values in found.items() if len(values) == len(samples) and None not in values]
    # An object without properties has no columns: its text is one.
    return {"type": "object", "properties": properties, "required": required} if properties else {"type": "string"}


def _inferred(values: list[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return {"type": "boolean"}
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in values):
        return {"type": "integer"}
    if kinds and kinds <= {int, float}:
        return {"type": "number"}
    if kinds == {dict}:
        return _object(values)
    if kinds == {list}:
        items = [item for value in values for item in value if item is not None]
        return {"type": "array", "items": _inferred(items)}
    if kinds == {str}:
        for name, parse in (("date", date.fromisoformat), ("date-time", _moment)):
            if all(_is(parse, value) for value in values):
                return {"type": "string", "format": name}
    return {"type": "string"}


def _moment(text: str) -> None:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time without a zone is no moment")


def _is(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True

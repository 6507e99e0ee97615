"""Columns as values: JSON or Avro by a topic's schema, the other way around than `columns`.

What is written, the parser of the same schema reads back as the same columns. A null field of JSON is left out, unless
its schema requires it and lets it be null. A row that the schema does not allow is an error that names it. Of the
framing of a registry the header is written, with the largest id that the schema names: ids grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.values.arrays import DAY_US
from headrace.core.values.avro.schema import library
from headrace.core.values.schema import ValueSchema
from headrace.core.values.types import (
    DecimalOf,
    ListOf,
    MapOf,
    ObjectOf,
    ValueField,
    ValueType,
    arrow_type,
    shown,
    wrong,
)

# What a value of a column is in the library that encodes it.
Take = Callable[[Any], Any]

_FITTING: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "integer": pa.types.is_signed_integer,
    "number": lambda kind: pa.types.is_signed_integer(kind) or pa.types.is_floating(kind),
    "string": pa.types.is_string,
    "boolean": pa.types.is_boolean,
    "date-time": lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    "local-date-time": lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    "date": pa.types.is_date,
    "time": pa.types.is_signed_integer,
    "bytes": pa.types.is_binary,
    "any": pa.types.is_string,
}
_REQUIRED: Final = "the schema of the values requires it"


class ValueWriter:
    """Makes values of columns by one schema. Thread-safe."""

    def __init__(self, schema: ValueSchema) -> None:
        self._fields = {field.column.lower(): field for field in schema.fields}
        self._header = _header(schema)
        given = msgspec.json.decode(schema.text)
        root = ObjectOf(schema.fields)
        self._encode = _json_encoder(root, given) if schema.format == "json" else _avro_encoder(root, given)

    def check(self, columns: pa.Schema) -> None:
        """Raise for columns that do not fit the schema: unknown, missing, or of another type."""
        _check_fields(self._fields, {field.name.lower(): field.type for field in columns}, "")

    def values(self, columns: pa.RecordBatch) -> pa.Array:
        """The value of each row."""
        names = [self._fields[name.lower()].name for name in columns.schema.names]
        rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
        values: list[bytes] = []
        try:
            values.extend(self._header + self._encode(dict(zip(names, row, strict=True))) for row in rows)
        except InvalidInput as error:
            raise InvalidMessage(error.field, error.value, error.rule, len(values)) from None
        return pa.array(values, pa.binary())


def _header(schema: ValueSchema) -> bytes:
    if schema.framing is None:
        return b""
    if schema.framing.schema_ids is None:
        raise wrong("schema_ids", None, "to write values the id in the header of the registry is needed: name it here")
    return b"\0" + max(schema.framing.schema_ids).to_bytes(4, "big")


def _check_fields(wanted: Mapping[str, ValueField], given: Mapping[str, pa.DataType], place: str) -> None:
    for name, kind in given.items():
        if name not in wanted:
            raise InvalidInput("column", repr(place + name)[:100], f"the fields of values are {', '.join(wanted)}")
        _check_type(wanted[name].type, kind, place + name)
    for name, field in wanted.items():
        if field.is_required and name not in given:
            raise InvalidInput("column", f"{place + name!r} missing", _REQUIRED)


def _check_type(kind: ValueType, given: Any, place: str) -> None:
    if isinstance(kind, ObjectOf) and pa.types.is_struct(given):
        fields = {field.name: field for field in kind.fields}
        _check_fields(fields, {each.name: each.type for each in given}, f"{place}.")
    elif isinstance(kind, ListOf) and pa.types.is_list(given):
        _check_type(kind.items, given.value_type, f"{place}[]")
    elif isinstance(kind, MapOf) and pa.types.is_map(given) and pa.types.is_string(given.key_type):
        _check_type(kind.values, given.item_type, f"{place}{{}}")
    elif not _fits(kind, given):
        raise InvalidInput(f"column {place}", f"of type {given}", f"it must be {shown(kind)} ({arrow_type(kind)})")


def _fits(kind: ValueType, given: Any) -> bool:
    if isinstance(kind, DecimalOf):
        return bool(pa.types.is_decimal(given) and given.scale == kind.scale and given.precision <= kind.precision)
    return isinstance(kind, str) and _FITTING[kind](given)


def _json_encoder(root: ObjectOf, given: Mapping[str, Any]) -> Callable[[Any], bytes]:
    take, encode = _json_type(root, given, ""), msgspec.json.Encoder().encode
    return lambda row: encode(take(row))


def _json_type(kind: ValueType, given: Any, place: str) -> Take:
    """How values of a type are taken, which a part of a JSON Schema describes."""
    if isinstance(kind, ListOf):
        return partial(_list, _json_type(kind.items, given.get("items", {}), f"{place}[]"))
    if isinstance(kind, MapOf):
        free = given["additionalProperties"]
        return partial(_map, _json_type(kind.values, {} if free is True else free, f"{place}{{}}"))
    if isinstance(kind, ObjectOf):
        required, properties = given.get("required", []), given["properties"]
        fields = []
        for field in kind.fields:
            path = f"{place}.{field.name}".lstrip(".")
            take = _json_type(field.type, properties[field.name], path)
            fields.append((field.name, path, take, field.is_required, field.name in required))
        return partial(_json_object, fields)
    return partial(_JSON.get(str(kind), _as_it_is), place)


def _json_object(fields: Iterable[tuple[str, str, Take, bool, bool]], row: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, path, take, is_required, is_kept in fields:
        value = row.get(name)
        if value is not None:
            made[name] = take(value)
        elif is_required:
            raise InvalidInput(path, "null", _REQUIRED)
        elif is_kept:
            made[name] = None
    return made


def _list(take: Take, items: Iterable[Any]) -> list[Any]:
    return [None if item is None else take(item) for item in items]


def _map(take: Take, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: None if item is None else take(item) for key, item in items}


def _as_it_is(_: str, value: Any) -> Any:
    return value


def _json_number(place: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(place, str(value), "JSON has no such number")
    return value


def _json_text(place: str, text: str) -> msgspec.Raw:
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(place, repr(text)[:100], f"it must be JSON: {error}") from None


_JSON: Final[dict[str, Callable[[str, Any], Any]]] = {"number": _json_number, "any": _json_text}


def _avro_encoder(root: ObjectOf, given: Mapping[str, Any]) -> Callable[[Any], bytes]:
    fastavro = library()
    schema, take = fastavro.parse_schema(dict(given)), _avro_type(root)

    def encode(row: Mapping[str, Any]) -> bytes:
        record, out = take(row), BytesIO()
        try:
            fastavro.validate(record, schema)
            fastavro.schemaless_writer(out, schema, record)
        except (ArithmeticError, TypeError, ValueError, fastavro.validation.ValidationError) as error:
            raise InvalidInput("value", "not as the schema says", " ".join(str(error).split())[:300]) from None
        return out.getvalue()

    return encode


def _avro_type(kind: ValueType) -> Take:
    if isinstance(kind, ListOf):
        return partial(_list, _avro_type(kind.items))
    if isinstance(kind, MapOf):
        return partial(_map, _avro_type(kind.values))
    if isinstance(kind, ObjectOf):
        return partial(_avro_record, [(field.name, _avro_type(field.type)) for field in kind.fields])
    return _time_of if kind == "time" else partial(_as_it_is, "")


def _avro_record(fields: Iterable[tuple[str, Take]], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if row.get(name) is None else take(row[name]) for name, take in fields}


def _time_of(microseconds: int) -> Any:
    """A time of day, which the library stores in the unit of its field."""
    if not 0 <= microseconds < DAY_US:
        raise InvalidInput("value", f"{microseconds} us", "a time is within a day")
    return (datetime.min + timedelta(microseconds=microseconds)).time()

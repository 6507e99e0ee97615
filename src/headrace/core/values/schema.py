"""The schema of a topic's values: which columns they become, the same in the archive, in Spark and in DuckDB.

A schema is JSON, and says by itself whether values are JSON or Avro:

    {"type": "object", "required": ["id"], "properties": {      a JSON Schema of an object
        "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "more": {}}}
    {"type": "record", "name": "order", "fields": [             an Avro schema of a record
        {"name": "id", "type": "long"}, {"name": "at", "type": ["null", "string"]}]}

Of a JSON Schema this reads what concerns columns: `type`, `format` (`date-time`, `date`), `properties`, `items` and
`required`; a property without a type may be anything, and is the text of its JSON. Each property is a column beside the
message's own; one with the name of one of these is called `value_<name>`. `value_error` says why a value does not fit:
all its columns are NULL then, and the raw value is kept. `avro` beside this reads schemas of Avro.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SCHEMA_BYTES_MAX, VALUE_SCHEMA_DEPTH_MAX, VALUE_SCHEMA_FIELDS_MAX

ERROR_COLUMN: Final = "value_error"
SETTING: Final = "value_schema"
# Under which files of the archive name, in their footers, the schema that their columns are of.
FOOTER_KEY: Final = b"headrace.value_schema"
# The columns that rows of tables have without a schema: those of messages, and what Spark adds.
TAKEN: Final = frozenset(
    "partition offset timestamp value key attributes codec created_at producer_id message_group_id seqno "
    f"topic message {ERROR_COLUMN}".split()
)
_ARROW: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date-time": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "bytes": pa.binary(),
    "any": pa.string(),
}
_JSON_TYPES: Final = ("integer", "number", "string", "boolean", "object", "array")
_FORBIDDEN: Final = frozenset(['"', "\\", *map(chr, range(32))])


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
    """A property: its name in values, and whether every value must have it."""

    name: str
    type: ValueType
    is_required: bool

    @property
    def column(self) -> str:
        """The column it becomes; with a dot in its name it must not look like a part of another column."""
        return f"value_{self.name}" if self.name.lower().partition(".")[0] in TAKEN else self.name


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """A schema: the format of values, their fields, and its text in one form whatever it was given as."""

    format: Literal["json", "avro"]
    fields: tuple[ValueField, ...]
    text: str

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
    if given.get("type") == "record":
        from headrace.core.values.avro import avro_fields

        schema = ValueSchema("avro", avro_fields(given), msgspec.json.encode(given).decode())
    else:
        parsed = _json_type(given, "", 0)
        if not isinstance(parsed, ObjectOf):
            rule = 'it must describe an object, {"type": "object", …}, or be an Avro schema of a record'
            raise InvalidInput(SETTING, repr(text)[:100], rule)
        schema = ValueSchema("json", parsed.fields, msgspec.json.encode(given).decode())
    _check_names(schema.fields)
    return schema


def wrong(place: str, value: Any, rule: str) -> InvalidInput:
    """What is wrong at a place in a schema, such as `in.a`."""
    return InvalidInput(f"{SETTING}.{place}" if place else SETTING, repr(value)[:100], rule)


def check_depth(place: str, depth: int) -> None:
    """Refuse types within types beyond a limit."""
    if depth > VALUE_SCHEMA_DEPTH_MAX:
        raise wrong(place[:100], f"{depth} levels deep", f"types may be nested {VALUE_SCHEMA_DEPTH_MAX} levels deep")


def _json_type(given: Any, place: str, depth: int) -> ValueType:
    check_depth(place, depth)
    if not isinstance(given, Mapping):
        raise wrong(place, given, "it must be an object with a type")
    named = given.get("type")
    if isinstance(named, list):
        others = [each for each in named if each != "null"]
        named = others[0] if len(others) == 1 else None
    if named is None:
        return "any"
    if named not in _JSON_TYPES:
        raise wrong(place, named, f"its type must be one of {', '.join(_JSON_TYPES)}")
    if named == "array":
        return ListOf(_json_type(given.get("items", {}), f"{place}[]", depth + 1))
    if named != "object":
        has_format = named == "string" and given.get("format") in ("date-time", "date")
        return str(given["format"] if has_format else named)
    return _json_object(given, place, depth)


def _json_object(given: Mapping[str, Any], place: str, depth: int) -> ObjectOf:
    properties, required = given.get("properties"), given.get("required", [])
    if not isinstance(properties, Mapping) or not properties:
        raise wrong(place, properties, "it needs properties, at least one")
    if not isinstance(required, list):
        raise wrong(f"{place}.required".lstrip("."), required, "it must be a list of properties")
    unknown = [name for name in required if not isinstance(name, str) or name not in properties]
    if unknown:
        raise wrong(f"{place}.required".lstrip("."), unknown[0], "it must be one of the properties")
    fields = (
        ValueField(
            name,
            _json_type(each, f"{place}.{name}".lstrip("."), depth + 1),
            name in required and not _may_be_null(each),
        )
        for name, each in properties.items()
    )
    return ObjectOf(tuple(fields))


def _may_be_null(given: Any) -> bool:
    return isinstance(given.get("type"), list) and "null" in given["type"]


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
    count = sum(len(names) for _, names in _names(fields, ""))
    if count > VALUE_SCHEMA_FIELDS_MAX:
        raise wrong("", f"{count} fields", f"it may have {VALUE_SCHEMA_FIELDS_MAX}")


def is_column_name(name: str) -> bool:
    """Whether a field may have this name."""
    return bool(name) and not _FORBIDDEN.intersection(name)


def _names(fields: tuple[ValueField, ...], place: str) -> Iterator[tuple[str, list[str]]]:
    """The names of columns, and then of the fields of each object within."""
    yield place, [each.name if place else each.column for each in fields]
    for each in fields:
        kind = each.type
        while isinstance(kind, ListOf):
            kind = kind.items
        if isinstance(kind, ObjectOf):
            yield from _names(kind.fields, f"{place}.{each.name}".lstrip("."))


def arrow_type(kind: ValueType) -> pa.DataType:
    """A type in Arrow."""
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.items))
    if isinstance(kind, ObjectOf):
        return pa.struct([(field.name, arrow_type(field.type)) for field in kind.fields])
    return _ARROW[kind]


def shown(kind: ValueType) -> str:
    """A type for people."""
    if isinstance(kind, ListOf):
        return f"array of {shown(kind.items)}"
    return "object" if isinstance(kind, ObjectOf) else kind

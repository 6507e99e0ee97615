"""The types that fields of values may have, whichever format they are in, and the columns they become.

One type of Arrow each, and only types that every engine reads from Parquet: DuckDB, Spark, Iceberg and Polars give the
same row. Spark has no column of the type TIME unless it is told to, so a time of day is a number of microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SCHEMA_DEPTH_MAX, VALUE_SCHEMA_FIELDS_MAX

ERROR_COLUMN: Final = "value_error"
SETTING: Final = "value_schema"
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
    "local-date-time": pa.timestamp("us"),
    "date": pa.date32(),
    "time": pa.int64(),
    "bytes": pa.binary(),
    "any": pa.string(),
}


@dataclass(frozen=True, slots=True)
class DecimalOf:
    """A decimal number of so many digits, `scale` of them behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array, of items of one type."""

    items: ValueType


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any keys, whose values are of one type."""

    values: ValueType


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object with these properties."""

    fields: tuple[ValueField, ...]


# A scalar is called as in the schema, or by its format.
ValueType: TypeAlias = str | DecimalOf | ListOf | MapOf | ObjectOf


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


def arrow_type(kind: ValueType) -> pa.DataType:
    """A type in Arrow."""
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.items))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), arrow_type(kind.values))
    if isinstance(kind, ObjectOf):
        return pa.struct([(field.name, arrow_type(field.type)) for field in kind.fields])
    return pa.decimal128(kind.precision, kind.scale) if isinstance(kind, DecimalOf) else _ARROW[kind]


def shown(kind: ValueType) -> str:
    """A type for people."""
    if isinstance(kind, ListOf):
        return f"array of {shown(kind.items)}"
    if isinstance(kind, MapOf):
        return f"map of {shown(kind.values)}"
    if isinstance(kind, DecimalOf):
        return f"decimal({kind.precision}, {kind.scale})"
    return "object" if isinstance(kind, ObjectOf) else kind


def inner_type(kind: ValueType) -> ValueType:
    """The type of what lists and maps hold in the end."""
    while isinstance(kind, ListOf | MapOf):
        kind = kind.items if isinstance(kind, ListOf) else kind.values
    return kind


def wrong(place: str, value: Any, rule: str) -> InvalidInput:
    """What is wrong at a place in a schema, such as `in.a`."""
    return InvalidInput(f"{SETTING}.{place}" if place else SETTING, repr(value)[:100], rule)


def check_depth(place: str, depth: int) -> None:
    """Refuse types within types beyond a limit."""
    if depth > VALUE_SCHEMA_DEPTH_MAX:
        raise wrong(place[:100], f"{depth} levels deep", f"types may be nested {VALUE_SCHEMA_DEPTH_MAX} levels deep")


def check_count(count: int) -> None:
    """Refuse more fields than a schema may have, at all levels together."""
    if count > VALUE_SCHEMA_FIELDS_MAX:
        raise wrong("", f"{count} fields", f"it may have {VALUE_SCHEMA_FIELDS_MAX}")

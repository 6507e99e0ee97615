"""Avro: schemas of records as fields, and values in its binary encoding as columns.

A value is one record, without a header and without the schema. Values of a schema that has since grown end before the
fields that were added: these are null. A value of a newer schema has more bytes than this one takes, and does not fit.
Values are decoded one by one, by fastavro (`pip install "headrace[avro]"`): no library decodes whole columns of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_AVRO_BYTES_MAX, VALUE_CELLS_MAX
from headrace.core.values.schema import (
    SETTING,
    ListOf,
    ObjectOf,
    ValueField,
    ValueType,
    arrow_type,
    check_depth,
    wrong,
)
from headrace.core.values.size import TOO_MANY_ITEMS, cells_of_item, items_of

_SCALARS: Final = {
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "string": "string",
    "boolean": "boolean",
    "bytes": "bytes",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "date-time",
    ("long", "timestamp-micros"): "date-time",
}
_KNOWN: Final = f"{', '.join(_SCALARS)}, enum, array, record, or a union of null and one of these"
_MISSING: Final = 'values of Avro need fastavro: pip install "headrace[avro]", also where the server runs'


def avro_fields(given: Mapping[str, Any]) -> tuple[ValueField, ...]:
    """The fields of a record."""
    try:
        import fastavro
    except ImportError:
        raise InvalidInput(SETTING, "avro", _MISSING) from None
    fields = _fields(given, "", 0)[0]
    try:
        fastavro.parse_schema(dict(given))
    except (fastavro.schema.SchemaParseException, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(SETTING, repr(dict(given))[:100], f"it is not a schema of Avro: {error}") from None
    return fields


def _fields(given: Mapping[str, Any], place: str, depth: int) -> tuple[tuple[ValueField, ...], dict[str, Any]]:
    """The fields of a record, and its schema as far as it is read."""
    check_depth(place, depth)
    listed = given.get("fields")
    if not isinstance(listed, list) or not listed:
        raise wrong(place, listed, "a record needs a list of fields, at least one")
    fields, read = [], []
    for each in listed:
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise wrong(place, each, "a field is an object with a name and a type")
        name = each["name"]
        kind, is_optional, plain = _nullable(each.get("type"), f"{place}.{name}".lstrip("."), depth + 1)
        fields.append(ValueField(name, kind, not is_optional))
        read.append({"name": name, "type": plain})
    # Names of records are unique in a schema: one by its place is.
    return tuple(fields), {"type": "record", "name": f"r{place.encode().hex()}", "fields": read}


def _nullable(given: Any, place: str, depth: int) -> tuple[ValueType, bool, Any]:
    """A type, whether it may be null, and its schema as far as it is read."""
    if not isinstance(given, list):
        kind, plain = _type(given, place, depth)
        return kind, False, plain
    others = [each for each in given if each != "null"]
    if len(others) != 1 or len(given) > 2:
        raise wrong(place, given, f"its type must be one of {_KNOWN}")
    kind, plain = _type(others[0], place, depth)
    return kind, len(given) == 2, [plain if each != "null" else each for each in given]


def _type(given: Any, place: str, depth: int) -> tuple[ValueType, Any]:
    check_depth(place, depth)
    named, logical = (given.get("type"), given.get("logicalType")) if isinstance(given, Mapping) else (given, None)
    if isinstance(given, Mapping) and named == "record":
        fields, plain = _fields(given, place, depth)
        return ObjectOf(fields), plain
    if isinstance(given, Mapping) and named == "array":
        kind, _, plain = _nullable(given.get("items"), f"{place}[]", depth + 1)
        return ListOf(kind), {"type": "array", "items": plain}
    if isinstance(given, Mapping) and named == "enum":
        return "string", {**given, "name": f"e{place.encode().hex()}"}
    if not isinstance(named, str) or named not in _SCALARS:
        raise wrong(place, named, f"its type must be one of {_KNOWN}")
    if isinstance(logical, str) and (named, logical) in _LOGICAL:
        return _LOGICAL[named, logical], {"type": named, "logicalType": logical}
    if logical == "decimal":
        raise wrong(place, logical, "decimals have no column: leave out logicalType to have the bytes")
    return _SCALARS[named], named


class AvroRows:
    """Decodes values of one schema."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        try:
            import fastavro
        except ImportError:
            raise InvalidInput(SETTING, "avro", _MISSING) from None
        fields, plain = _fields(given, "", 0)
        self._read = fastavro.schemaless_reader
        self._fields = fields
        self._item_cells = cells_of_item(fields)
        self._whole = fastavro.parse_schema(plain)
        # What every value has at least, and the optional fields after that: a value may end before any of them.
        least = max(1, 1 + max((place for place, field in enumerate(fields) if field.is_required), default=0))
        self._least = fastavro.parse_schema({**plain, "fields": plain["fields"][:least]})
        self._rest = [(each["name"], fastavro.parse_schema(each["type"])) for each in plain["fields"][least:]]

    def parse(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of the fields, and why each value does not fit, or None."""
        judged = [self._row(value) for value in values.to_pylist()]
        columns = [
            pa.array([row.get(field.name) for row, _ in judged], arrow_type(field.type)) for field in self._fields
        ]
        return columns, [error for _, error in judged]

    def _row(self, value: bytes | None) -> tuple[dict[str, Any], str | None]:
        if value is None:
            return {}, "the value is null"
        if self._item_cells and len(value) > VALUE_AVRO_BYTES_MAX:
            return {}, TOO_MANY_ITEMS
        for read in (self._read_whole, self._read_until_it_ends):
            source = BytesIO(value)
            try:
                row = read(source, len(value))
            except (EOFError, IndexError, ValueError, OverflowError, KeyError):
                continue
            if source.tell() == len(value):
                # An item has one byte at least.
                may_exceed = len(value) * self._item_cells > VALUE_CELLS_MAX
                if may_exceed and items_of(ObjectOf(self._fields), row) * self._item_cells > VALUE_CELLS_MAX:
                    return {}, TOO_MANY_ITEMS
                return row, None
        return {}, "the value is not a record of the schema"

    def _read_whole(self, source: BytesIO, _: int) -> dict[str, Any]:
        row: Any = self._read(source, self._whole)
        return row  # type: ignore[no-any-return]

    def _read_until_it_ends(self, source: BytesIO, size: int) -> dict[str, Any]:
        """A value of before the schema had its last fields."""
        row: Any = self._read(source, self._least)
        for name, schema in self._rest:
            if source.tell() == size:
                break
            row[name] = self._read(source, schema)
        return row  # type: ignore[no-any-return]

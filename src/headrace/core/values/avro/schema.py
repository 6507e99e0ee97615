"""Avro schemas as types of fields, as the schema that fastavro decodes by, and as the shape of what it decodes to.

Logical types are not decoded one by one: fastavro gives the numbers and bytes that are stored, and `columns` makes
columns of them. A named type may be used again by its name; it is read as if it stood there once more. A type within
itself, and a union of several types beside null, has no column of one type and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.core.limits import MESSAGE_BYTES_MAX, VALUE_DECIMAL_DIGITS_MAX
from headrace.core.values.arrays import Lists, Maps, Objects, Scalars, Shape
from headrace.core.values.avro.columns import LOGICAL, decimals, plain_column, uuids
from headrace.core.values.types import (
    SETTING,
    DecimalOf,
    ListOf,
    MapOf,
    ObjectOf,
    ValueField,
    ValueType,
    arrow_type,
    check_count,
    check_depth,
    wrong,
)

_SCALARS: Final = {
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "string": "string",
    "boolean": "boolean",
    "bytes": "bytes",
}
_KNOWN: Final = f"{', '.join(_SCALARS)}, fixed, enum, array, map, record, or a union of null and one of these"
_MISSING: Final = 'values of Avro need fastavro: pip install "headrace[avro]", also where the server runs'
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type: as a type of fields, as the schema it is decoded by, and as the shape of what is decoded."""

    kind: ValueType
    plain: Any
    shape: Shape


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """A record: its fields, the schema it is decoded by, and the shape of a decoded one."""

    fields: tuple[ValueField, ...]
    plain: dict[str, Any]
    shape: Objects


def avro_fields(given: Mapping[str, Any]) -> tuple[ValueField, ...]:
    """The fields of a record, of a schema that Avro accepts."""
    fastavro = library()
    fields = avro_record(given).fields
    try:
        fastavro.parse_schema(dict(given))
    except (fastavro.schema.SchemaParseException, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(SETTING, repr(dict(given))[:100], f"it is not a schema of Avro: {error}") from None
    return fields


def avro_record(given: Mapping[str, Any]) -> AvroRecord:
    """The record that a schema describes."""
    return _Types().record(given, "", 0, "")


def library() -> Any:
    """The library that decodes Avro."""
    try:
        import fastavro
    except ImportError:
        raise InvalidInput(SETTING, "avro", _MISSING) from None
    return fastavro


class _Types:
    """Reads the types of one schema, and knows those that have names."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}
        # The names of the types that are being read: one of them within itself would not end.
        self._open: list[str] = []
        self._fields = 0
        # Names of types are unique in a schema. Numbers are: a field may be called like the place of another one.
        self._numbers = count()

    def record(self, given: Mapping[str, Any], place: str, depth: int, namespace: str) -> AvroRecord:
        """A record at a place of the schema, whose names are in a namespace."""
        check_depth(place, depth)
        listed = given.get("fields")
        if not isinstance(listed, list) or not listed:
            raise wrong(place, listed, "a record needs a list of fields, at least one")
        self._fields += len(listed)
        check_count(self._fields)
        name, inside = self._add(given, namespace)
        self._open.append(name)
        fields, read, taken = [], [], []
        for each in listed:
            if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
                raise wrong(place, each, "a field is an object with a name and a type")
            of = each["name"]
            found, is_optional = self._nullable(each.get("type"), f"{place}.{of}".lstrip("."), depth + 1, inside)
            fields.append(ValueField(of, found.kind, not is_optional))
            read.append({"name": of, "type": found.plain})
            taken.append((itemgetter(of), found.shape))
        self._open.pop()
        kind = ObjectOf(tuple(fields))
        absent: dict[str, Any] = dict.fromkeys(field.name for field in fields)
        plain = self._plain("record", fields=read)
        return AvroRecord(kind.fields, plain, Objects(arrow_type(kind), absent, taken))

    def _nullable(self, given: Any, place: str, depth: int, namespace: str) -> tuple[AvroType, bool]:
        """A type, and whether it may be null."""
        if not isinstance(given, list):
            return self._type(given, place, depth, namespace), False
        others = [each for each in given if each != "null"]
        if len(others) != 1 or len(given) > 2:
            raise wrong(place, given, f"its type must be one of {_KNOWN}")
        found = self._type(others[0], place, depth, namespace)
        plain = [found.plain if each != "null" else each for each in given]
        return AvroType(found.kind, plain, found.shape), len(given) == 2

    def _type(self, given: Any, place: str, depth: int, namespace: str) -> AvroType:
        check_depth(place, depth)
        if isinstance(given, str) and given not in _SCALARS:
            return self._reference(given, place, depth, namespace)
        named = given.get("type") if isinstance(given, Mapping) else given
        if not isinstance(given, Mapping):
            given = {"type": given}
        if named == "record":
            record = self.record(given, place, depth, namespace)
            return AvroType(ObjectOf(record.fields), record.plain, record.shape)
        if named == "array":
            found, _ = self._nullable(given.get("items"), f"{place}[]", depth + 1, namespace)
            kind: ValueType = ListOf(found.kind)
            return AvroType(kind, {"type": "array", "items": found.plain}, Lists(arrow_type(kind), found.shape))
        if named == "map":
            found, _ = self._nullable(given.get("values"), f"{place}{{}}", depth + 1, namespace)
            kind = MapOf(found.kind)
            return AvroType(kind, {"type": "map", "values": found.plain}, Maps(arrow_type(kind), found.shape))
        if named == "enum":
            self._add(given, namespace)
            plain = self._plain("enum", symbols=_symbols(given, place))
            return AvroType("string", plain, plain_column("string"))
        if named == "fixed":
            self._add(given, namespace)
            return _fixed(self._plain("fixed", size=_size(given, place)), given, place)
        return _scalar(named, given, place)

    def _plain(self, kind: str, **given: Any) -> dict[str, Any]:
        """A named type to decode by."""
        return {"type": kind, "name": f"t{next(self._numbers)}", **given}

    def _add(self, given: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Note a named type; its full name, and the namespace of the names in it."""
        name = _full(str(given.get("name")), str(given.get("namespace", namespace)))
        self._named.setdefault(name, (given, namespace))
        return name, name.rpartition(".")[0]

    def _reference(self, name: str, place: str, depth: int, namespace: str) -> AvroType:
        """A type by the name that it has further up."""
        full = _full(name, namespace)
        if full in self._open:
            raise wrong(place, name, "a type within itself has no columns")
        if full not in self._named:
            raise wrong(place, name, f"its type must be one of {_KNOWN}, or the name of a type further up")
        definition, within = self._named[full]
        return self._type(definition, place, depth, within)


def _full(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _symbols(given: Mapping[str, Any], place: str) -> list[Any]:
    symbols = given.get("symbols")
    if not isinstance(symbols, list):
        raise wrong(place, symbols, "an enum needs a list of symbols")
    return symbols


def _size(given: Mapping[str, Any], place: str) -> int:
    size = given.get("size")
    # Items without bytes could be any number in a value of a few.
    if type(size) is not int or not 1 <= size <= MESSAGE_BYTES_MAX:
        raise wrong(place, size, f"the size of fixed must be a number of bytes, 1 to {MESSAGE_BYTES_MAX}")
    return size


def _fixed(plain: dict[str, Any], given: Mapping[str, Any], place: str) -> AvroType:
    logical = given.get("logicalType")
    if logical == "uuid" and plain["size"] == _UUID_BYTES:
        return AvroType("string", plain, Scalars(uuids))
    return _decimal(plain, given, place) if logical == "decimal" else AvroType("bytes", plain, plain_column("bytes"))


def _scalar(named: Any, given: Mapping[str, Any], place: str) -> AvroType:
    logical = given.get("logicalType")
    plain: Any = "long" if named == "int" else named
    if named == "bytes" and logical == "decimal":
        return _decimal(plain, given, place)
    if not isinstance(named, str) or named not in _SCALARS:
        raise wrong(place, named, f"its type must be one of {_KNOWN}")
    if isinstance(logical, str) and (named, logical) in LOGICAL:
        kind, shape = LOGICAL[named, logical]
        return AvroType(kind, _noted(plain, logical), shape)
    return AvroType(_SCALARS[named], plain, plain_column(_SCALARS[named]))


def _noted(plain: Any, meaning: Any) -> dict[str, Any]:
    """A schema with what its numbers or bytes mean: fastavro does not look at it, the rule of growth does."""
    return {**(plain if isinstance(plain, dict) else {"type": plain}), "meaning": str(meaning)}


def _decimal(plain: Any, given: Mapping[str, Any], place: str) -> AvroType:
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or not 0 < precision <= VALUE_DECIMAL_DIGITS_MAX:
        rule = f"its precision must be 1 to {VALUE_DECIMAL_DIGITS_MAX} digits: leave out logicalType to have the bytes"
        raise wrong(place, precision, rule)
    if type(scale) is not int or not 0 <= scale <= precision:
        raise wrong(place, scale, f"the scale of a decimal must be a number from 0 to its precision, {precision}")
    number = DecimalOf(precision, scale)
    return AvroType(number, _noted(plain, number), Scalars(decimals(number)))

"""JSON values as columns: each value judged by itself, exactly, and the columns made of all of them at once.

msgspec decodes a value into a struct of its fields and checks it on the way. There are readers of JSON that work on
whole columns; none of them says which rows do not fit, and they are not faster (docs/tables.md, Speed). Of a property,
or key that occurs twice in an object the last counts, numbers beyond 64 bits fit `number` only, and 1.0 is no integer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.limits import VALUE_CELLS_MAX, VALUE_DEPTH_MAX
from headrace.core.values.arrays import Lists, Maps, Objects, Scalars, Shape, check_years, fitting_columns_of, items_of
from headrace.core.values.size import TOO_DEEP, TOO_MANY_ITEMS, cells_of_item, has_maps, json_excess
from headrace.core.values.types import ListOf, MapOf, ObjectOf, ValueField, ValueType, arrow_type

_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_TYPES: Final[dict[str, Any]] = {
    "integer": _INT64,
    "number": float,
    "string": str,
    "boolean": bool,
    "date-time": Annotated[datetime, msgspec.Meta(tz=True)],
    "date": date,
    "any": msgspec.Raw,
}
_NAMES: Final = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "datetime": "date-time"}
_MESSAGE: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?")


def is_text_of(kind: str, text: str) -> bool:
    """Whether a string is a `date`, or a `date-time`: one without a zone is none."""
    try:
        msgspec.convert(text, _TYPES[kind])
    except msgspec.ValidationError:
        return False
    return True


class JsonRows:
    """Decodes values of one schema."""

    def __init__(self, fields: Sequence[ValueField]) -> None:
        decoded, self._shape = _object_of(fields)
        self._item_cells = cells_of_item(fields)
        self._has_maps = has_maps(fields)
        self._decode = msgspec.json.Decoder(decoded).decode

    def parse(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of the fields, and why each value does not fit, or None."""
        rows, errors = self._rows(values)
        columns, faults = fitting_columns_of(self._shape, rows)
        return columns, [faults.get(row, error) for row, error in enumerate(errors)] if faults else errors

    def _rows(self, values: pa.Array) -> tuple[list[Any], list[str | None]]:
        given = values.to_pylist()
        try:
            # All of a value must be UTF-8, also what no field takes.
            values.cast(pa.string())
            if not self._has_excess(values, given):
                return [self._decode(value) for value in given], [None] * len(given)
        except (pa.ArrowInvalid, msgspec.DecodeError, RecursionError, TypeError):
            pass
        judged = [self._row(value) for value in given]
        return [row for row, _ in judged], [error for _, error in judged]

    def _has_excess(self, values: pa.Array, given: list[bytes | None]) -> bool:
        longest: Any = pc.max(pc.binary_length(values))
        if (longest.as_py() or 0) <= VALUE_DEPTH_MAX:
            return False
        return any(value is not None and self._may_exceed(value) for value in given)

    def _may_exceed(self, value: bytes) -> bool:
        return json_excess(value, self._item_cells, self._has_maps) is not None or self._has_uncounted(value)

    def _has_uncounted(self, value: bytes) -> bool:
        """Whether members of maps, which have two bytes at least, may be more than columns can hold."""
        return self._has_maps and len(value) * self._item_cells > 2 * VALUE_CELLS_MAX

    def _row(self, value: bytes | None) -> tuple[Any, str | None]:
        row, error = self._decoded(value)
        return (self._shape.absent if row is None else row), error

    def _decoded(self, value: bytes | None) -> tuple[Any, str | None]:
        """What a value is decoded to, or None and why it does not fit."""
        if value is None:
            return None, "the value is null"
        try:
            value.decode()
            excess = json_excess(value, self._item_cells, self._has_maps)
            row = None if excess is not None else self._decode(value)
        except UnicodeDecodeError:
            return None, "the value is not valid UTF-8"
        except RecursionError:
            return None, TOO_DEEP
        except msgspec.ValidationError as error:
            return None, _told(str(error))
        except msgspec.DecodeError as error:
            what = str(error).removeprefix("JSON is malformed: ")
            return None, f"the value is not JSON: {what[:1].lower()}{what[1:]}"
        if self._has_uncounted(value) and items_of(self._shape, row) * self._item_cells > VALUE_CELLS_MAX:
            return None, TOO_MANY_ITEMS
        return row, excess


def _told(message: str) -> str:
    """What msgspec says of a value, in the words of the schema."""
    found = _MESSAGE.fullmatch(message)
    what, place = (message, None) if found is None else found.groups()
    what = re.sub("`([^`]*)`", lambda name: _name(name[1]), what)
    what = f"{what[:1].lower()}{what[1:]}"
    if what.startswith("object missing required field "):
        name = what.removeprefix("object missing required field ")
        return f"the field {f'{place}.{name}' if place else name} is missing"
    return f"the field {place}: {what}" if place else f"the value is not a JSON object: {what}"


def _name(of: str) -> str:
    return _NAMES.get(of.removesuffix(" | null"), of.removesuffix(" | null"))


def _object_of(fields: Sequence[ValueField]) -> tuple[Any, Objects]:
    """The type that msgspec decodes objects with these fields to, and its shape."""
    names = [f"f{place}" for place in range(len(fields))]
    inner = [_type(field.type) for field in fields]
    made = [
        (name, kind) if field.is_required else (name, _or_null(kind), msgspec.Raw() if field.type == "any" else None)
        for name, field, (kind, _) in zip(names, fields, inner, strict=True)
    ]
    renamed = dict(zip(names, (field.name for field in fields), strict=True))
    struct = msgspec.defstruct("Value", made, kw_only=True, gc=False, rename=renamed)
    taken = [(attrgetter(name), shape) for name, (_, shape) in zip(names, inner, strict=True)]
    return struct, Objects(arrow_type(ObjectOf(tuple(fields))), struct(**dict.fromkeys(names)), taken)


def _type(kind: ValueType) -> tuple[Any, Shape]:
    """The type that msgspec decodes, and its shape."""
    if isinstance(kind, ObjectOf):
        return _object_of(kind.fields)
    if isinstance(kind, ListOf):
        decoded, shape = _type(kind.items)
        return list[_or_null(decoded)], Lists(arrow_type(kind), shape)  # type: ignore[misc]
    if isinstance(kind, MapOf):
        decoded, shape = _type(kind.values)
        return dict[str, _or_null(decoded)], Maps(arrow_type(kind), shape)  # type: ignore[misc]
    return _TYPES[str(kind)], Scalars(partial(_scalars, str(kind)))


def _or_null(kind: Any) -> Any:
    # Raw takes null as well.
    return kind if kind is msgspec.Raw else kind | None


def _scalars(kind: str, items: list[Any]) -> pa.Array:
    if kind == "any":
        items = [None if item is None else _json_text(bytes(item)) for item in items]
    array = pa.array(items, arrow_type(kind))
    if kind == "date-time":
        check_years(array)
    return array


def _json_text(raw: bytes) -> bytes | None:
    """The text of any JSON; null, or nothing, is none."""
    return None if raw in (b"", b"null") else raw

"""JSON values as columns: each value judged by itself, exactly, and the columns made of all of them at once.

msgspec decodes a value into a struct of its fields and checks it on the way. There are readers of JSON that work on
whole columns; none of them says which rows do not fit, and they are not faster (docs/TABLES.md, Speed). Of a property
that occurs twice in a value the last counts, numbers beyond 64 bits fit `number` only, and 1.0 is no integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.limits import VALUE_DEPTH_MAX
from headrace.core.values.schema import ListOf, ObjectOf, ValueField, ValueType, arrow_type
from headrace.core.values.size import TOO_DEEP, cells_of_item, json_excess

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
_FIRST_US, _LAST_US = (
    pa.array([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]).cast(pa.int64()).to_pylist()
)
_MESSAGE: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?")


def is_text_of(kind: str, text: str) -> bool:
    """Whether a string is a `date`, or a `date-time`: one without a zone is none."""
    try:
        msgspec.convert(text, _TYPES[kind])
    except msgspec.ValidationError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Object:
    """How objects are decoded, and their fields taken out of them; `absent` is one of which all fields are null."""

    type: Any
    absent: Any
    fields: list[tuple[Callable[[Any], Any], ValueType, _Object | None]]


class JsonRows:
    """Decodes values of one schema."""

    def __init__(self, fields: Sequence[ValueField]) -> None:
        self._object = _object_of(fields)
        self._item_cells = cells_of_item(fields)
        self._decode = msgspec.json.Decoder(self._object.type).decode

    def parse(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of the fields, and why each value does not fit, or None.

        Raises if one of them has what no column can hold.
        """
        rows, errors = self._rows(values)
        return _fields(self._object, rows), errors

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
        return any(value is not None and json_excess(value, self._item_cells) is not None for value in given)

    def _row(self, value: bytes | None) -> tuple[Any, str | None]:
        if value is None:
            return self._object.absent, "the value is null"
        try:
            value.decode()
            excess = json_excess(value, self._item_cells)
            return (self._decode(value), None) if excess is None else (self._object.absent, excess)
        except UnicodeDecodeError:
            return self._object.absent, "the value is not valid UTF-8"
        except RecursionError:
            return self._object.absent, TOO_DEEP
        except msgspec.ValidationError as error:
            return self._object.absent, _told(str(error))
        except msgspec.DecodeError as error:
            what = str(error).removeprefix("JSON is malformed: ")
            return self._object.absent, f"the value is not JSON: {what[:1].lower()}{what[1:]}"


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


def _object_of(fields: Sequence[ValueField]) -> _Object:
    names = [f"f{place}" for place in range(len(fields))]
    inner = [_inner(field.type) for field in fields]
    made = [
        (name, kind) if field.is_required else (name, _or_null(kind), msgspec.Raw() if field.type == "any" else None)
        for name, field, kind in zip(
            names, fields, (_type(field.type, each) for field, each in zip(fields, inner, strict=True)), strict=True
        )
    ]
    renamed = dict(zip(names, (field.name for field in fields), strict=True))
    struct = msgspec.defstruct("Value", made, kw_only=True, gc=False, rename=renamed)
    absent = struct(**dict.fromkeys(names))
    getters = zip(map(attrgetter, names), (field.type for field in fields), inner, strict=True)
    return _Object(struct, absent, list(getters))


def _inner(kind: ValueType) -> _Object | None:
    """How the objects of a field, or of its items, are decoded."""
    while isinstance(kind, ListOf):
        kind = kind.items
    return _object_of(kind.fields) if isinstance(kind, ObjectOf) else None


def _type(kind: ValueType, inner: _Object | None) -> Any:
    if isinstance(kind, ListOf):
        return list[_or_null(_type(kind.items, inner))]  # type: ignore[misc]
    return inner.type if inner is not None else _TYPES[str(kind)]


def _or_null(kind: Any) -> Any:
    # Raw takes null as well.
    return kind if kind is msgspec.Raw else kind | None


def _fields(of: _Object, rows: Sequence[Any]) -> list[pa.Array]:
    return [_array(kind, inner, list(map(take, rows))) for take, kind, inner in of.fields]


def _array(kind: ValueType, inner: _Object | None, items: list[Any]) -> pa.Array:
    if isinstance(kind, ListOf):
        offsets: list[int] = [0]
        flat: list[Any] = []
        for item in items:
            flat += item or ()
            offsets.append(len(flat))
        is_null = pa.array([item is None for item in items], pa.bool_())
        values = _array(kind.items, inner, flat)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, arrow_type(kind), mask=is_null)
    if isinstance(kind, ObjectOf):
        assert inner is not None
        is_null = pa.array([item is None for item in items], pa.bool_())
        arrays = _fields(inner, [inner.absent if item is None else item for item in items])
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(kind)), mask=is_null)
    if kind == "any":
        items = [None if item is None else _json_text(bytes(item)) for item in items]
    array = pa.array(items, arrow_type(kind))
    if kind == "date-time":
        _check_years(array)
    return array


def _check_years(times: pa.Array) -> None:
    """Refuse times that are in the years 1 to 9999 in their zone, and not in UTC: Python cannot read them back."""
    bounds: Any = pc.min_max(times.cast(pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < _FIRST_US or most > _LAST_US):
        raise ValueError("a date-time is not in the years 1 to 9999 in UTC")


def _json_text(raw: bytes) -> bytes | None:
    """The text of any JSON; null, or nothing, is none."""
    return None if raw in (b"", b"null") else raw

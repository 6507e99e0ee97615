"""The fields of each message, taken from kio's classes, which are generated from Kafka's own schemas.

kio is used for its schemas only. Its reader allocates what an array claims before it looks whether the bytes are there,
so seven bytes from anyone end the process (tried with 0.6.5). Ours is in `reader`, and bounds everything by what came.

A field that a version does not have is simply not in its schema: handlers are written once for all versions.

Numbers of fixed length that follow one another are read and written in one step, and so are arrays of nothing else: a
request that names a thousand partitions is little more than one call for each.
"""

from __future__ import annotations

import struct
import typing
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

# How numbers are written.
NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint8": struct.Struct(">B"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "uint64": struct.Struct(">Q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}
# What a field holds that a response does not name and the schema gives no default for.
_ZEROS: Final[dict[str, Any]] = {"string": "", "bytes": b"", "records": b"", "uuid": None, "bool": False}


@dataclass(frozen=True, slots=True, eq=False)
class SchemaField:
    """One field: of a primitive kind, or a struct; `tag` is set for those that may be left out."""

    name: str
    kind: str
    struct: Struct | None
    is_array: bool
    is_nullable: bool
    default: Any
    tag: int | None


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that follow one another: their names, what they are if a response does not say, and their form."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    form: struct.Struct


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a message or of a part of it, in their order on the wire, and the steps to read or write them.

    If there are only numbers, `form` is that of all of them; a flexible struct has the count of its tags behind them.
    `row` makes one of those structs from its numbers and the defaults of its tags.
    """

    is_flexible: bool
    fields: tuple[SchemaField, ...]
    tagged: tuple[SchemaField, ...]
    steps: tuple[SchemaField | Numbers, ...]
    form: struct.Struct | None
    row: Callable[[Iterable[Any]], Any] | None
    tagged_defaults: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A request or a response of one version; flexible headers have tags."""

    struct: Struct
    has_flexible_header: bool


@cache
def request_schema(api_key: int, version: int) -> MessageSchema:
    """The schema of a request."""
    return _message(load_request_schema(api_key, version), flexible_header=2)


@cache
def response_schema(api_key: int, version: int) -> MessageSchema:
    """The schema of a response."""
    return _message(load_response_schema(api_key, version), flexible_header=1)


def struct_of(entity: Any) -> Struct:
    """The schema of any class of kio, such as what members of a group tell each other."""
    plain: list[SchemaField] = []
    tagged: list[SchemaField] = []
    for field in fields(entity):
        described = _field(field)
        (plain if described.tag is None else tagged).append(described)
    steps = _steps(plain)
    tagged_defaults = {field.name: field.default for field in tagged}
    form = row = None
    if len(steps) == 1 and isinstance(steps[0], Numbers):
        form = struct.Struct(steps[0].form.format + ("B" if entity.__flexible__ else ""))
        # A third of what a namespace takes, in memory and in time.
        kind: Any = namedtuple("Row", [*steps[0].names, *tagged_defaults])  # type: ignore[misc]
        row = kind._make
    return Struct(
        entity.__flexible__,
        tuple(plain),
        tuple(sorted(tagged, key=lambda field: field.tag or 0)),
        steps,
        form,
        row,
        tagged_defaults,
    )


def _steps(fields: list[SchemaField]) -> tuple[SchemaField | Numbers, ...]:
    steps: list[SchemaField | Numbers] = []
    for are_numbers, some in groupby(fields, lambda field: field.kind in NUMBERS and not field.is_array):
        if not are_numbers:
            steps += some
            continue
        run = list(some)
        form = struct.Struct(">" + "".join(NUMBERS[field.kind].format[1:] for field in run))
        steps.append(Numbers(tuple(field.name for field in run), tuple(field.default for field in run), form))
    return tuple(steps)


def _message(entity: Any, flexible_header: int) -> MessageSchema:
    return MessageSchema(struct_of(entity), entity.__header_schema__.__version__ == flexible_header)


def _field(field: Any) -> SchemaField:
    kind, is_nullable = _without_none(field.type)
    is_array = typing.get_origin(kind) is tuple
    if is_array:
        kind, is_nullable_inside = _without_none(typing.get_args(kind)[0])
        is_nullable |= is_nullable_inside
    struct = struct_of(kind) if is_dataclass(kind) else None
    name = "struct" if struct is not None else str(field.metadata["kafka_type"])
    default = _default(field, name, struct, is_array, is_nullable)
    return SchemaField(field.name, name, struct, is_array, is_nullable, default, field.metadata.get("tag"))


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (UnionType, typing.Union):
        return next(part for part in typing.get_args(kind) if part is not NoneType), True
    return kind, False


def _default(field: Any, kind: str, struct: Struct | None, is_array: bool, is_nullable: bool) -> Any:
    given = field.default
    if isinstance(given, timedelta):
        return round(given.total_seconds() * 1000)
    if kind == "datetime_i64" and (given is None or given is MISSING):
        return -1
    if given is not MISSING and not is_dataclass(given):
        return given
    if is_array:
        return ()
    if struct is not None:
        return None if is_nullable else {}
    return None if is_nullable else _ZEROS.get(kind, 0)

"""JSON bodies of every operation over HTTP and Flight, made from the structs that they are decoded to.

    body = JsonBody(wire.Seek, "seek")
    body.containers, body.texts                    the lists and dictionaries inside, and the texts, as paths
    body.encoded()                                 one that is served, with names of things that exist
    body.encoded(path, Repeated(1000, True))       with so many elements at one of the places, equal or different
    body.encoded(path, Long(30_000))               with a text of such a length there

`FILLED` knows fields by name; anything else gets a value of its type, so that a new operation needs a line there only
if its fields have new names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect

from tests.hostile.target import DOOMED, FIXED_GROUP, GROUP, NARROW, WIDE

Path = tuple[str, ...]

FILLED: Final[dict[str, Any]] = {
    "topic": WIDE,
    "name": "scratch-new",
    "group": GROUP,
    "member": "m",
    "to": "earliest",
    "read_from": "earliest",
    "producer_id": "till-7",
    "message_group_id": "",
    "writer": "nightly",
    "pipeline": "land",
    "state": "running",
    "value": "x",
    "encoding": "text",
    "codec": None,
    "created_at": None,
    "partition": 0,
    "offset": 0,
    "partitions": None,
    "consumers": None,
    "generation": None,
    "session_timeout_seconds": 30.0,
    "token_id": "none",
    "consumer_id": 10_000_000_010,
    "message": "x",
    "grants": [["scratch-none", ["read"]]],
}
# What is lost is not needed by the other requests.
FILLED_FOR: Final[dict[str, dict[str, Any]]] = {
    "delete_topic": {"topic": DOOMED},
    "delete_messages": {"topic": NARROW},
    "follow": {"topic": NARROW},
    "follow_as_member": {"topic": NARROW, "group": FIXED_GROUP, "member": "0"},
    "trim_topic": {"topic": NARROW},
    "delete_group": {"group": "scratch-doomed"},
    "offsets_within": {"ranges": {0: (0, 1, 1)}},
    "produce": {"producer_id": 1},
    "client_size": {"producer_id": 1},
}
PLAIN: Final[dict[type[inspect.Type], Any]] = {
    inspect.StrType: "x",
    inspect.IntType: 0,
    inspect.FloatType: 0.0,
    inspect.BoolType: False,
}


@dataclass(frozen=True)
class Repeated:
    """So many elements, equal or each with texts and numbers of its own. Keys of dictionaries always differ."""

    count: int
    is_distinct: bool


@dataclass(frozen=True)
class Long:
    """A text of such a length."""

    characters: int


@dataclass(frozen=True)
class Marked:
    """Marks for the number of the element in place of its texts and numbers."""


Put = Repeated | Long | Marked | None


def _places(kind: inspect.Type, above: Path = ()) -> Iterator[tuple[Path, inspect.Type]]:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _places(each, above)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from _places(field.type, (*above, field.encode_name))
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield above, kind
        yield from _places(kind.item_type, (*above, "[]"))
    elif isinstance(kind, inspect.TupleType):
        for number, item in enumerate(kind.item_types):
            yield from _places(item, (*above, str(number)))
    elif isinstance(kind, inspect.DictType | inspect.StrType):
        yield above, kind


class JsonBody:
    """Bodies of one operation."""

    def __init__(self, kind: Any, operation: str, topic: str = WIDE) -> None:
        self._kind = inspect.type_info(kind)
        self._known = FILLED | {"topic": topic} | FILLED_FOR.get(operation, {})
        places = list(_places(self._kind))
        self.containers = [path for path, found in places if not isinstance(found, inspect.StrType)]
        self.texts = [path for path, found in places if isinstance(found, inspect.StrType)]

    def encoded(self, at: Path = (), put: Put = None) -> bytes:
        """A body."""
        return self._encoded(self._kind, "", at, put)

    def _encoded(self, kind: inspect.Type, name: str, at: Path, put: Put) -> bytes:
        is_here = not at and put is not None
        if not is_here and not at and name in self._known:
            return msgspec.json.encode(self._known[name])
        if isinstance(kind, inspect.UnionType):
            # The alternative that has the place, or else the first one.
            ways = (each for each in kind.types if isinstance(put, Repeated | Long) and at in dict(_places(each)))
            return self._encoded(next(ways, kind.types[0]), name, at, put)
        if isinstance(kind, inspect.StructType):
            return b"{" + b",".join(self._members(kind, at, put)) + b"}"
        if isinstance(kind, inspect.TupleType):
            below = [_below(at, str(number), put) for number in range(len(kind.item_types))]
            items = zip(kind.item_types, below, strict=True)
            return b"[" + b",".join(self._encoded(item, "", *rest) for item, rest in items) + b"]"
        if isinstance(kind, inspect.ListType | inspect.VarTupleType):
            if isinstance(put, Repeated) and is_here:
                return b"[" + self._repeated(kind.item_type, name, put) + b"]"
            return b"[" + self._encoded(kind.item_type, "", *_below(at, "[]", put)) + b"]"
        if isinstance(kind, inspect.DictType):
            count = put.count if isinstance(put, Repeated) and is_here else 1
            value = self._encoded(kind.value_type, "", (), None)
            return b"{" + b",".join(b'"%d":%s' % (number, value) for number in range(count)) + b"}"
        return _scalar(kind, put if is_here else None)

    def _members(self, kind: inspect.StructType, at: Path, put: Put) -> Iterator[bytes]:
        if isinstance(kind.tag, str):
            yield msgspec.json.encode(kind.tag_field) + b":" + msgspec.json.encode(kind.tag)
        for field in kind.fields:
            name = field.encode_name
            rest, inside = _below(at, name, put)
            if field.required or inside is not None or name in self._known:
                yield msgspec.json.encode(name) + b":" + self._encoded(field.type, name, rest, inside)

    def _repeated(self, item: inspect.Type, name: str, put: Repeated) -> bytes:
        known = self._known.get(name)
        if isinstance(known, list) and not put.is_distinct:
            return b",".join([msgspec.json.encode(known[0])] * put.count)
        element = self._encoded(item, "", (), Marked() if put.is_distinct else None)
        marks = element.count(b"%d") if put.is_distinct else 0
        if not marks:
            return b",".join([element] * put.count)
        return b",".join([element % ((number,) * marks) for number in range(put.count)])


def _scalar(kind: inspect.Type, put: Put) -> bytes:
    if isinstance(put, Long):
        return b'"' + b"x" * put.characters + b'"'
    if isinstance(put, Marked) and isinstance(kind, inspect.StrType):
        return b'"scratch-%d"'
    if isinstance(put, Marked) and isinstance(kind, inspect.IntType):
        return b"%d"
    return msgspec.json.encode(kind.values[0] if isinstance(kind, inspect.LiteralType) else PLAIN.get(type(kind)))


def _below(at: Path, name: str, put: Put) -> tuple[Path, Put]:
    """The rest of the way to the place, if it leads there; marks are wanted everywhere."""
    if isinstance(put, Marked):
        return (), put
    return (at[1:], put) if at[:1] == (name,) else ((), None)


# What `variants` has of each container and each text.
COUNTS: Final = (1_000, 100_000, 1_000_000)
TEXT_BYTES: Final = 4 << 20


def variants(body: JsonBody) -> Iterator[tuple[str, bytes]]:
    """Bodies of an operation with long containers and texts, and what is long in each."""
    for path in body.containers:
        for count in COUNTS:
            for is_distinct in (False, True):
                what = f"{count:,} {'different' if is_distinct else 'equal'} {'.'.join(path)}"
                yield what, body.encoded(path, Repeated(count, is_distinct))
    for path in body.texts:
        yield f"long {'.'.join(path)}", body.encoded(path, Long(TEXT_BYTES))

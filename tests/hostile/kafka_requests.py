"""Requests of every Kafka API that is served, made from the table of APIs and the schemas of their fields.

`shapes` lists what to try: of each API the newest version of each set of arrays and texts. `encoded` makes a request
that is served, with names of things that exist; something else may stand at one place of it, such as a text of the
greatest length or, by `repeated`, an array of many equal or different elements. `FILLED` knows fields by name; what it
does not know has the default of the schema, so that a new API needs a line there only if its fields have new names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np

from headrace.protocols.kafka.apis.table import APIS
from headrace.protocols.kafka.apis.topic_ids import NO_TOPIC
from headrace.protocols.kafka.messages.schema import SchemaField, Struct, request_schema
from headrace.protocols.kafka.messages.writer import Writer
from tests.hostile.target import DOOMED, GROUP, NARROW, WIDE, Address
from tests.protocols.kafka.raw import RawClient, framed
from tests.protocols.kafka.records.test_codec import NOW_MS, built

Path = tuple[str, ...]
Put = Callable[[SchemaField], Any]

JOIN_GROUP, SYNC_GROUP, CONSUMER_HEARTBEAT = 11, 14, 68
ASSIGNED_BYTES: Final = 1 << 20
# The longest string that is read, and bytes that fit a request.
TEXT_BYTES, BYTES_BYTES = 32_767, 40 << 20
TOPIC_RESOURCE: Final = 2
SUBSCRIPTION: Final = b"\x00\x01\x00\x00\x00\x01\x00\x0cscratch-wide" + bytes(4)
# By name, or by the API and the name, or by the array and the name.
FILLED: Final[dict[str, Any]] = {
    "topic_names": DOOMED,
    "DeleteTopics.name": DOOMED,
    "DeleteRecords.name": NARROW,
    "CreatePartitions.name": NARROW,
    "CreateTopics.name": "scratch-new",
    "CreateTopics.assignments": [],
    "configs.name": "retention.ms",
    "protocols.name": "range",
    "DeleteGroups.groups_names": "scratch-doomed",
    "resource_type": TOPIC_RESOURCE,
    "configuration_keys": "retention.ms",
    "value": "600000",
    "mechanism": "PLAIN",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "metadata": SUBSCRIPTION,
    "session_timeout": 30_000,
    "rebalance_timeout": 1_000,
    "timeout": 1_000,
    "replica_id": -1,
    "acks": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "timestamp": -1,
    "count": 8,
    "num_partitions": 1,
    "replication_factor": 1,
    "generation_id": 1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": 0,
    "OffsetFetch.member_epoch": -1,
    "records": built([(NOW_MS, None, b"x", [])]),
    # Metadata and DeleteTopics are told names beside ids.
    "Metadata.topic_id": NO_TOPIC,
    "DeleteTopics.topic_id": NO_TOPIC,
    # Nothing is made or changed, however often it is asked for.
    "validate_only": True,
    "allow_auto_topic_creation": False,
}
# Partitions of a topic: different elements have different ones.
NUMBERED: Final = frozenset({"partition", "partitions", "partition_index", "partition_indexes", "index"})
TEXT_MARK, NUMBER_MARK = "########", 0x7A3B5C6D
ID_MARK: Final = UUID(int=0x7A3B5C6D_7A3B5C6D_7A3B5C6D_7A3B5C6D)


@dataclass(frozen=True)
class Shape:
    """A version of an API, with the places of its arrays and its texts."""

    api: str
    key: int
    version: int
    arrays: tuple[Path, ...]
    texts: tuple[Path, ...]


def shapes(key: int) -> list[Shape]:
    """The newest version of each shape that requests of an API have, the newest last."""
    found: dict[tuple[Any, ...], Shape] = {}
    for version in APIS[key].versions:
        arrays, texts = _places(request_schema(key, version).struct)
        found[arrays, texts] = Shape(APIS[key].name, key, version, arrays, texts)
    return sorted(found.values(), key=lambda shape: shape.version)


def _places(struct: Struct, above: Path = ()) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    arrays: list[Path] = []
    texts: list[Path] = []
    for field in (*struct.fields, *struct.tagged):
        path = (*above, field.name)
        if field.is_array:
            arrays.append(path)
        if field.kind in ("string", "bytes", "records"):
            texts.append(path)
        if field.struct is not None:
            inside = _places(field.struct, path)
            arrays += inside[0]
            texts += inside[1]
    return tuple(arrays), tuple(texts)


@dataclass(frozen=True)
class Repeated:
    """An array of many elements: the same again and again, or each with names and numbers of its own."""

    element: Any
    count: int


class RepeatingWriter(Writer):
    """A writer that encodes a repeated element once."""

    def _field(self, field: SchemaField, value: Any, is_flexible: bool) -> None:
        if not isinstance(value, Repeated):
            super()._field(field, value, is_flexible)
            return
        if is_flexible:
            self.unsigned_varint(value.count + 1)
        else:
            self.number("int32", value.count)
        one = Writer()
        one._value(field, value.element, is_flexible)
        self.parts.append(_numbered(one.join(), value.count))


def _numbered(element: bytes, count: int) -> bytes:
    """An encoded element so many times, with the number of each in place of the marks."""
    rows = np.tile(np.frombuffer(element, np.uint8), (count, 1))
    numbers = np.arange(count)
    digits = (numbers[:, None] // 10 ** np.arange(7, -1, -1) % 10 + ord("0")).astype(np.uint8)
    big_endian = numbers.astype(">i4").view(np.uint8).reshape(count, 4)
    for mark, written in (
        (TEXT_MARK.encode(), digits),
        (ID_MARK.bytes, np.hstack([np.zeros((count, 12), np.uint8), big_endian])),
        (NUMBER_MARK.to_bytes(4, "big"), big_endian),
    ):
        place = element.find(mark)
        while place >= 0:
            rows[:, place : place + len(mark)] = written
            place = element.find(mark, place + len(mark))
    return rows.tobytes()


@dataclass(frozen=True)
class KafkaRequests:
    """Makes requests; `known` are names and ids of this server, beside `FILLED`."""

    known: dict[str, Any]

    def encoded(self, shape: Shape, at: Path = (), put: Put | None = None, number: int = 0) -> bytes:
        """A request that is served, with something else at a place."""
        fields = self._fields(shape.api, request_schema(shape.key, shape.version).struct, "", at, put)
        return framed(shape.key, shape.version, fields, number, RepeatingWriter())

    def repeated(self, shape: Shape, at: Path, count: int, is_distinct: bool) -> bytes:
        """A request with so many elements in one of its arrays."""

        def put(field: SchemaField) -> Repeated:
            element = self._element(shape.api, field, "".join(at[-2:-1]))
            return Repeated(_marked(field, element) if is_distinct else element, count)

        return self.encoded(shape, at, put)

    def long(self, shape: Shape, at: Path) -> bytes:
        """A request with one of its texts as long as it may be."""

        def put(field: SchemaField) -> Any:
            text: Any = self._element(shape.api, field, "".join(at[-2:-1]))
            text = (
                (text or "").ljust(TEXT_BYTES, "x")
                if field.kind == "string"
                else (text or b"").ljust(BYTES_BYTES, b"\0")
            )
            return [text] if field.is_array else text

        return self.encoded(shape, at, put)

    def _fields(self, api: str, struct: Struct, above: str, at: Path, put: Put | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in (*struct.fields, *struct.tagged):
            if at[:1] != (field.name,):
                if field.tag is None:
                    values[field.name] = self._value(api, field, above)
            elif len(at) == 1 and put is not None:
                values[field.name] = put(field)
            elif field.struct is not None:
                inside = self._fields(api, field.struct, field.name, at[1:], put)
                values[field.name] = [inside] if field.is_array else inside
        return values

    def _value(self, api: str, field: SchemaField, above: str) -> Any:
        found = self._found(api, field, above)
        if isinstance(found, list):
            return found
        if field.is_nullable and (field.is_array or found is None):
            # Null often means all there is.
            return None
        element = self._element(api, field, above)
        return [element] if field.is_array else element

    def _element(self, api: str, field: SchemaField, above: str) -> Any:
        if field.struct is not None:
            return self._fields(api, field.struct, field.name, (), None)
        found = self._found(api, field, above)
        if isinstance(found, list):
            return found[0]
        if found is not None:
            return found
        return {"string": "", "bytes": b"", "uuid": NO_TOPIC}.get(field.kind, 0 if field.is_array else field.default)

    def _found(self, api: str, field: SchemaField, above: str) -> Any:
        names = (f"{api}.{field.name}", f"{above}.{field.name}", field.name)
        found = next((known[name] for name in names for known in (self.known, FILLED) if name in known), None)
        return found if field.struct is None or isinstance(found, list) else None


TOPIC_FIELDS: Final = ("topic", "name", "resource_name")
GROUP_FIELDS: Final = ("group_id", "groups", "group_ids", "groups_names", "coordinator_keys", "key")
CLASSIC_APIS: Final = ("JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup")


def prepared(address: Address, name: str, topic: str = WIDE, group: str = GROUP) -> KafkaRequests:
    """Requests that name a topic and a group of a server, and two more groups, of such names, with a member each."""
    with RawClient(address.kafka, token=address.tokens["attacker"]) as client:
        joining = {"session_timeout": 300_000, "rebalance_timeout": 1_000, "protocol_type": "consumer"}
        joining |= {"group_id": name, "protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}
        member_id = client.call(JOIN_GROUP, 5, member_id="", **joining).member_id
        generation = client.call(JOIN_GROUP, 5, member_id=member_id, **joining).generation_id
        member = {"group_id": name, "member_id": member_id, "generation_id": generation}
        assigned = [{"member_id": member_id, "assignment": bytes(ASSIGNED_BYTES)}]
        client.call(SYNC_GROUP, 3, **member, assignments=assigned)
        newer = {"group_id": f"{name}-848", "member_id": "", "member_epoch": 0, "rebalance_timeout": 300_000}
        joined = client.call(CONSUMER_HEARTBEAT, 0, **newer, subscribed_topic_names=[topic], topic_partitions=[])
        newer |= {"member_id": joined.member_id, "member_epoch": joined.member_epoch}
    known: dict[str, Any] = dict.fromkeys(TOPIC_FIELDS, topic) | dict.fromkeys(GROUP_FIELDS, group)
    known |= {"topic_id": address.topic_ids[topic], "subscribed_topic_names": [topic], "DescribeGroups.groups": name}
    known |= {f"{api}.{field}": value for api in CLASSIC_APIS for field, value in member.items()}
    known |= {f"ConsumerGroupHeartbeat.{field}": value for field, value in newer.items()}
    return KafkaRequests(known | {"ConsumerGroupDescribe.group_ids": newer["group_id"]})


def _marked(field: SchemaField, element: Any) -> Any:
    """An element in which every name, and the number of a partition, is marked to be another one in each row."""
    if field.struct is None:
        return _mark(field, element)
    single = [each for each in field.struct.fields if not each.is_array]
    return element | {each.name: _mark(each, element[each.name]) for each in single}


def _mark(field: SchemaField, value: Any) -> Any:
    if field.kind == "uuid":
        return ID_MARK
    if field.kind == "string":
        return f"scratch-{TEXT_MARK}"
    if field.kind == "int32" and field.name in NUMBERED:
        return NUMBER_MARK
    return value


def every_shape() -> Iterator[Shape]:
    """All shapes of all APIs."""
    for key in APIS:
        yield from shapes(key)

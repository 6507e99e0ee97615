"""Events: streams of a topic, one for each key, whose versions count from 1 on; and snapshots of them.

The version of an event is the seqno of its key: the key is the message group of one producer id. So whether a version
is the next one is decided in the commit, for all servers of a store. Events are messages of the partition of their key,
with event type, versions and metadata as attributes. A snapshot is a message of another topic beside it, which counts
the snapshots of each key in the same way; the last one counts.

There is no index of versions: reading looks back from the end of the partition until the first wanted version is found.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.broker import Broker
from headrace.broker.publish.parts import Part
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import TopicNotFound
from headrace.core.hashes.columns import partition_of
from headrace.core.limits import FETCH_BYTES_DEFAULT
from headrace.core.messages import ATTRIBUTES, content_bytes
from headrace.core.publish.sources import Source
from headrace.protocols.cursus.call import CursusAnswer, CursusCall, topic_of
from headrace.protocols.cursus.commands.kept import EVENT_SOURCING, has
from headrace.protocols.cursus.commands.publish import Outgoing, decide, hold_back
from headrace.protocols.cursus.errors import CursusRefusal, ErrorPlace, Quoted, refusal_of
from headrace.protocols.cursus.messages.batch import AGGREGATE_VERSION, attributes_of
from headrace.protocols.cursus.messages.command import Command
from headrace.protocols.cursus.messages.outgoing import batch_of, records_of

_EVENTS: Final = "cursus.events"
_SNAPSHOTS: Final = "cursus.snapshots"
_SUFFIX: Final = ".snap"
_FIRST_MESSAGES: Final = 256
_GROWTH: Final = 4
_MESSAGES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class EventNumber:
    """The version of an event."""

    key: str
    version: int

    @property
    def source(self) -> Source:
        """The stream of the key."""
        return _EVENTS, self.key

    def first_seqno(self, last: int | None) -> int:
        """The version, if it is the next one."""
        current = last or 0
        if self.version != current + 1:
            raise CursusRefusal("version_conflict", current=current, expected=self.version)
        return self.version


@dataclass(frozen=True, slots=True)
class SnapshotNumber:
    """The number of a snapshot of a key: the next one, whatever its version."""

    key: str

    @property
    def source(self) -> Source:
        """The snapshots of the key."""
        return _SNAPSHOTS, self.key

    def first_seqno(self, last: int | None) -> int:
        """The next number."""
        return (last or 0) + 1


def snapshots_topic(topic: str) -> str:
    """The topic of the snapshots of a topic of events."""
    return topic + _SUFFIX


async def append(call: CursusCall, command: Command) -> str:
    """Write the next event of a key."""
    topic, key = _named(command)
    number = EventNumber(key, command.number("version", least=1))
    message = _message(command)
    schema = command.number("schema_version", default=1)
    if schema >= 1 << 32:
        raise CursusRefusal("invalid_schema_version")
    reader = await _opened(call, topic, "publish")
    event = command.get("event_type").encode(), schema, number.version, command.get("metadata").encode()
    part = await _write(call, reader, key, message, attributes_of(event), number)
    return f"OK version={number.version} offset={part.offset} partition={part.partition}"


async def version(call: CursusCall, command: Command) -> str:
    """The last version of a key; 0 if it has none."""
    topic, key = _named(command)
    await _opened(call, topic, "read")
    return f"OK version={await call.work(_last, call.broker, topic, (_EVENTS, key))}"


async def save_snapshot(call: CursusCall, command: Command) -> str:
    """Keep the state of a key at a version that it has reached."""
    topic, key = _named(command)
    wanted = command.number("version", least=1)
    message = _message(command)
    reader = await _opened(call, topic, "publish")
    current = await call.work(_last, call.broker, topic, (_EVENTS, key))
    if wanted > current:
        raise CursusRefusal("snapshot_version_exceeds_stream", version=wanted, current=current)
    beside = await call.reader(snapshots_topic(reader.name))
    part = await _write(call, beside, key, message, attributes_of((b"", 0, wanted, b"")), SnapshotNumber(key))
    return f"OK version={wanted} partition={part.partition}"


async def read_snapshot(call: CursusCall, command: Command) -> str:
    """The last snapshot of a key, or null."""
    topic, key = _named(command)
    reader = await _opened(call, topic, "read")
    found = await _snapshot(call, reader.name, key)
    return f"OK snapshot={json.dumps(found, separators=(',', ':'))}"


def _told_in_json(
    handler: Callable[[CursusCall, Command], Awaitable[CursusAnswer]],
) -> Callable[[CursusCall, Command], Awaitable[CursusAnswer]]:
    """Clients read the answer to READ_STREAM as JSON, also that it failed."""

    @wraps(handler)
    async def handle(call: CursusCall, command: Command) -> CursusAnswer:
        try:
            return await handler(call, command)
        except Exception as error:
            refusal = refusal_of(error.with_traceback(None), ErrorPlace(command.get("topic")))
            return json.dumps({"status": "ERROR", "error": str(refusal).removeprefix("ERROR: ")})

    return handle


@_told_in_json
async def read_stream(call: CursusCall, command: Command) -> CursusAnswer:
    """The last snapshot of a key, and the events after it: two frames."""
    topic, key = _named(command)
    first = command.number("from_version", default=1, least=1)
    reader = await _opened(call, topic, "read")
    snapshot = await _snapshot(call, reader.name, key)
    told: dict[str, Any] = {"status": "OK", "topic": reader.name, "key": key}
    if snapshot is not None and snapshot["version"] >= first:
        told["snapshot"], first = snapshot, snapshot["version"] + 1
    last = await call.work(_last, call.broker, topic, (_EVENTS, key))
    partition = partition_of(key.encode(), reader.partitions)
    bytes_max = call.parts.settings.fetch_bytes_max
    await call.room.take(bytes_max)
    rows: list[bytes] = []
    if last >= first:
        async with call.parts.searches:
            rows = await call.work(_records, reader, partition, (_EVENTS, key), (first, last), bytes_max)
    told |= {"partition": partition, "count": len(rows)}
    return [json.dumps(told), batch_of(reader.name, partition, rows)]


def _named(command: Command) -> tuple[str, str]:
    return topic_of(command), command.required("key")


def _message(command: Command) -> bytes:
    if not command.message:
        raise CursusRefusal("missing_message", command=command.name)
    return command.message


async def _opened(call: CursusCall, topic: str, operation: str) -> TopicReader:
    """A topic of events."""
    call.require(operation, topic)
    reader = await call.reader(topic)
    if not has(reader.settings, EVENT_SOURCING):
        raise CursusRefusal("event_sourcing_not_enabled", topic=topic)
    return reader


async def _write(
    call: CursusCall,
    reader: TopicReader,
    key: str,
    message: bytes,
    attributes: list[tuple[str, bytes]] | None,
    number: EventNumber | SnapshotNumber,
) -> Part:
    await hold_back(call, len(message))
    columns = {
        "value": pa.array([message], pa.binary()),
        "key": pa.array([key.encode()], pa.binary()),
        "attributes": pa.array([attributes], ATTRIBUTES),
    }
    partition = partition_of(key.encode(), reader.partitions)
    return await decide(call, reader.name, Outgoing(partition, pa.RecordBatch.from_pydict(columns), number))


def _last(broker: Broker, topic: str, source: Source) -> int:
    return broker.last_seqno(topic, *source) or 0


async def _snapshot(call: CursusCall, topic: str, key: str) -> dict[str, Any] | None:
    beside, source = snapshots_topic(topic), (_SNAPSHOTS, key)
    try:
        reader = await call.reader(beside)
        number = await call.work(_last, call.broker, beside, source)
    except TopicNotFound:
        return None
    if not number:
        return None
    partition = partition_of(key.encode(), reader.partitions)
    async with call.parts.searches:
        bytes_max = call.parts.settings.fetch_bytes_max
        found = await call.work(_search, reader, partition, source, (number, number), bytes_max)
    if not found:
        return None
    attributes = dict(found[-1].column("attributes")[-1].as_py())
    return {
        "version": int(attributes.get(AGGREGATE_VERSION, b"0")),
        "payload": found[-1].column("value")[-1].as_py().decode(errors="replace"),
    }


def _records(
    reader: TopicReader, partition: int, source: Source, versions: tuple[int, int], bytes_max: int
) -> list[bytes]:
    """The events of a key with these versions, as records."""
    found = _search(reader, partition, source, versions, bytes_max)
    wanted = versions[1] + 1 - versions[0]
    if sum(batch.num_rows for batch in found) < wanted:
        for other in range(reader.partitions):
            # Partitions were added since: the key has moved.
            if other != partition:
                found = _search(reader, other, source, versions, bytes_max) + found
    rows = sorted(
        (number, row)
        for batch in found
        for number, row in zip(batch.column("seqno").to_pylist(), records_of(batch, batch.column("value")), strict=True)
    )
    return [row for _, row in rows]


def _search(
    reader: TopicReader, partition: int, source: Source, versions: tuple[int, int], bytes_max: int
) -> list[pa.RecordBatch]:
    """The messages of a source with these seqnos, looking back from the end; those of one batch in their order."""
    offsets = reader.offsets()
    stop, oldest = int(offsets.end[partition]), int(offsets.start[partition])
    found: list[pa.RecordBatch] = []
    messages, size = _FIRST_MESSAGES, 0
    while stop > oldest:
        start = max(oldest, stop - messages)
        parts: list[pa.RecordBatch] = []
        at = offsets.readable(partition, start)
        while at < stop:
            for batch in reader.read({partition: at}, stop - at, FETCH_BYTES_DEFAULT):
                parts.append(batch.filter(_is_of(batch, source, versions)))
                at = batch.column("offset")[-1].as_py() + 1
            at = offsets.readable(partition, at)
        found = [part for part in parts if part.num_rows] + found
        size += sum(map(content_bytes, parts))
        if size > bytes_max:
            reason = f"the events of this key have more than {bytes_max} bytes"
            raise CursusRefusal("command_failed", reason=Quoted(f"{reason}: read from a later version, or a snapshot"))
        if found and found[0].column("seqno")[0].as_py() == versions[0]:
            break
        stop, messages = start, min(messages * _GROWTH, _MESSAGES_MAX)
    return found


def _is_of(batch: pa.RecordBatch, source: Source, versions: tuple[int, int]) -> pa.Array:
    producer_id, group = source
    seqno = batch.column("seqno")
    is_its = pc.and_(
        pc.equal(batch.column("producer_id"), producer_id), pc.equal(batch.column("message_group_id"), group)
    )
    is_wanted = pc.and_(pc.greater_equal(seqno, versions[0]), pc.less_equal(seqno, versions[1]))
    return pc.fill_null(pc.and_(is_its, is_wanted), False)

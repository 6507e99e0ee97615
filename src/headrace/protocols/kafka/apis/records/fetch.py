"""Fetch: messages of many partitions as record batches, waiting for the first of them.

A request waits on the event loop, without a thread, until there are `min_bytes`, its time is up, its client leaves or
the server stops. Each reading is done in a thread: many partitions are read in one pass over the log, and the messages
of all partitions are encoded at once. With a session (`fetch_sessions`) a client names its partitions once, and is
answered only what is new. Since version 13 topics are named by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.codecs.columns import decode_known
from headrace.core.errors import HeadraceError
from headrace.core.limits import DECODED_BATCH_BYTES_MAX, FETCH_MESSAGES_MAX, FETCH_WAIT_SECONDS_MAX
from headrace.core.messages import content_bytes
from headrace.edge.access import Lease
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.records.fetch_sessions import (
    NO_EPOCH,
    NO_SESSION,
    FetchSession,
    Place,
    SessionError,
    Wanted,
)
from headrace.protocols.kafka.apis.records.idle_fetch import Nothing, Unchanged
from headrace.protocols.kafka.apis.topic_ids import NO_TOPIC, TopicRef, known_name, topic_name
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.records.encode import encode_by_broker_time, encode_many
from headrace.protocols.kafka.ticks import Wait
from headrace.storage.interface import OffsetRange

_MILLISECONDS: Final = 1000
# What a record takes in addition to key, value and headers, at least: so small messages stay within the limit too.
_RECORD_OVERHEAD_BYTES: Final = 16
# More partitions than this are read in one pass over the log.
_TOGETHER_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked of one partition."""

    partition: int
    offset: int
    bytes_max: int


@dataclass(slots=True)
class _Topic:
    """What is asked of one topic, or why it is refused; and its offsets as last seen."""

    ref: TopicRef
    name: str
    wanted: list[_Wanted]
    reader: TopicReader | None
    error: Exception | None
    seen: OffsetRange | None = None


@dataclass(slots=True)
class _Found:
    """The answer so far."""

    responses: list[dict[str, Any]]
    bytes: int = 0
    has_error: bool = False
    # Nothing could be found, and the time is over: no error, and nothing was read.
    is_nothing: bool = False


async def fetch(call: Call, request: Any) -> dict[str, Any]:
    """Read, waiting for messages."""
    asked = {
        Place(_ref(topic), each.partition): Wanted(each.fetch_offset, max(1, each.partition_max_bytes))
        for topic in request.topics
        for each in topic.partitions
    }
    epoch = getattr(request, "session_epoch", NO_EPOCH)
    try:
        session = call.parts.fetch_sessions.begin(
            getattr(request, "session_id", NO_SESSION),
            epoch,
            call.principal.name,
            asked,
            (
                Place(_ref(topic), partition)
                for topic in getattr(request, "forgotten_topics_data", ())
                for partition in topic.partitions
            ),
            asyncio.get_running_loop().time(),
        )
    except SessionError as error:
        return {"error_code": ErrorCode[str(error)], "session_id": NO_SESSION}
    topics = await _topics(call, asked if session is None else session.wanted)
    bytes_max = min(max(1, request.max_bytes), call.parts.settings.fetch_bytes_max)
    found = await _awaited(call, topics, request, bytes_max)
    responses = [{"topic": topic.ref, "topic_id": topic.ref, **each} for topic, each in _paired(topics, found)]
    if epoch != NO_EPOCH:
        # Requests of a session differ, and repeating the one that began it would begin another.
        call.waited.nothing = None
    if session is not None:
        responses = _news(session, topics, responses, is_incremental=epoch > 0)
    return {
        "error_code": ErrorCode.none,
        "session_id": NO_SESSION if session is None else session.id,
        "responses": responses,
    }


def _paired(topics: list[_Topic], found: _Found) -> Iterator[tuple[_Topic, dict[str, Any]]]:
    for topic, answer in zip(topics, found.responses, strict=True):
        yield topic, {"partitions": answer["partitions"]}


def _news(
    session: FetchSession, topics: list[_Topic], responses: list[dict[str, Any]], is_incremental: bool
) -> list[dict[str, Any]]:
    """What the client of a session needs of an answer: all at first, then only what changed."""
    kept = []
    for topic, response in zip(topics, responses, strict=True):
        news = [
            each for each in response["partitions"] if session.news(Place(topic.ref, each["partition_index"]), each)
        ]
        if not is_incremental:
            kept.append(response)
        elif news:
            kept.append(response | {"partitions": news})
    return kept


def _ref(topic: Any) -> TopicRef:
    """How a request names a topic; an id of zeros is none that a topic has."""
    return topic.topic if hasattr(topic, "topic") else topic.topic_id or NO_TOPIC


async def _topics(call: Call, places: Mapping[Place, Wanted]) -> list[_Topic]:
    wanted: dict[TopicRef, list[_Wanted]] = {}
    for place, asked in places.items():
        wanted.setdefault(place.topic, []).append(_Wanted(place.partition, asked.offset, asked.bytes_max))
    return [await _opened(call, ref, partitions) for ref, partitions in wanted.items()]


async def _opened(call: Call, ref: TopicRef, wanted: list[_Wanted]) -> _Topic:
    broker = call.parts.bridge.broker
    name = ref if isinstance(ref, str) else known_name(broker, ref) or ""
    try:
        if isinstance(ref, UUID) and not name:
            name = await call.parts.bridge.call(topic_name, broker, ref)
        call.principal.require("read", name)
        if not broker.knows_topic(name):
            await call.parts.bridge.know(name)
        return _Topic(ref, name, wanted, broker.reader(name), None)
    except HeadraceError as error:
        return _Topic(ref, name, wanted, None, error)


async def _awaited(call: Call, topics: list[_Topic], request: Any, bytes_max: int) -> _Found:
    whole_wait_seconds = min(max(0, request.max_wait) / _MILLISECONDS, FETCH_WAIT_SECONDS_MAX)
    wait_seconds = max(0.0, whole_wait_seconds - call.waited.seconds)
    leases = [call.principal.lease("read", topic.name) for topic in topics if topic.reader is not None]
    if wait_seconds == 0 or not leases:
        return await _bounded(call, topics, bytes_max)
    event = asyncio.Event()
    # All leases are the same token's: if one ends because the token does, so do the others.
    with call.principal.stream(), call.gone.waking(event), call.parts.leases.waking(leases[0], event):
        waiting = call.parts.ticks.begin(event, wait_seconds)
        watched = [call.parts.wakeups.watch(event, topic.reader) for topic in topics if topic.reader is not None]
        try:
            found = await _until_enough(call, topics, request.min_bytes, bytes_max, waiting, leases)
            if found.is_nothing:
                call.waited.nothing = _nothing(topics, whole_wait_seconds, leases[0])
            return found
        finally:
            call.parts.ticks.end(waiting)
            for key in set(watched):
                call.parts.wakeups.unwatch(event, key)


def _nothing(topics: list[_Topic], wait_seconds: float, lease: Lease) -> Nothing | None:
    """What to wait for if the same is asked again; None if that is not known."""
    unchanged = [
        Unchanged(topic.reader, [each.partition for each in topic.wanted], topic.seen)
        for topic in topics
        if topic.reader is not None and topic.seen is not None
    ]
    return Nothing(unchanged, wait_seconds, lease) if len(unchanged) == len(topics) else None


async def _until_enough(
    call: Call, topics: list[_Topic], bytes_min: int, bytes_max: int, waiting: Wait, leases: list[Lease]
) -> _Found:
    """Wait until there is enough, or the time is over."""
    while True:
        waiting.event.clear()
        is_over = waiting.is_over or call.parts.bridge.draining.has_begun or call.gone.has_begun
        has_news = any(map(_has_news, topics))
        if is_over and not has_news:
            # Most fetches end like this: no thread is needed for it.
            found = _read(None, topics, 0)
            found.is_nothing = waiting.is_over and not found.has_error
            return found
        if has_news:
            found = await _bounded(call, topics, bytes_max)
            if is_over or found.has_error or found.bytes >= bytes_min:
                return found
            call.room.shrink()
        await waiting.event.wait()
        for lease in leases:
            if lease.version != call.parts.gate.version:
                lease.check()


async def _bounded(call: Call, topics: list[_Topic], bytes_max: int) -> _Found:
    """Read once, with room for what is read until it is written to the client."""
    bridge = call.parts.bridge
    await call.room.take(bytes_max)
    found = await bridge.call(_read, bridge.broker, topics, bytes_max)
    # One message may be larger than the limit.
    call.room.shrink(found.bytes)
    return found


def _has_news(topic: _Topic) -> bool:
    """Whether reading could give anything, an error among it; neither locks nor disk are used."""
    if topic.reader is None:
        return True
    try:
        topic.seen = topic.reader.seen_offsets()
    except HeadraceError:
        return True
    if topic.seen is None:
        return True
    ends = topic.seen.end
    if len(topic.wanted) > _TOGETHER_MIN:
        ends = ends.tolist()
    return any(each.partition >= len(ends) or each.offset < ends[each.partition] for each in topic.wanted)


def _read(broker: Broker | None, topics: list[_Topic], bytes_max: int) -> _Found:
    """Read all partitions once, in a thread; without a broker only what is known of them without blocking."""
    found = _Found([])
    for topic in topics:
        answers = _described(topic, can_block=broker is not None)
        if broker is not None:
            _fill(broker, topic, answers, bytes_max, found)
        found.has_error |= any(answer["error_code"] for answer in answers)
        found.responses.append({"topic": topic.name, "partitions": answers})
    return found


def _described(topic: _Topic, can_block: bool) -> list[dict[str, Any]]:
    """The answer of each partition, without records."""
    starts: list[int] = []
    ends: list[int] = []
    failure = topic.error
    if topic.reader is not None:
        try:
            offsets = (None if can_block else topic.seen) or topic.reader.offsets()
            starts, ends = offsets.start.tolist(), offsets.end.tolist()
        except Exception as error:
            failure = error
    answers: list[dict[str, Any]] = []
    for wanted in topic.wanted:
        partition = wanted.partition
        code = ErrorCode.none
        start = end = -1
        if failure is not None:
            code = code_of(failure)
        elif not 0 <= partition < len(ends):
            code = ErrorCode.unknown_topic_or_partition
        else:
            start, end = starts[partition], ends[partition]
            if not start <= wanted.offset <= end:
                code = ErrorCode.offset_out_of_range
        answers.append(
            {
                "partition_index": partition,
                "error_code": code,
                "high_watermark": end,
                "last_stable_offset": end,
                "log_start_offset": start,
                "aborted_transactions": None,
                "records": b"",
            }
        )
    return answers


def _fill(broker: Broker, topic: _Topic, answers: list[dict[str, Any]], bytes_max: int, found: _Found) -> None:
    """Read the partitions that have messages, and put them into their answers."""
    behind: dict[int, int] = {}
    for place, (wanted, answer) in enumerate(zip(topic.wanted, answers, strict=True)):
        if not answer["error_code"] and wanted.offset < answer["high_watermark"]:
            behind[wanted.partition] = place
    if not behind or (found.bytes and found.bytes >= bytes_max):
        return
    batches = _read_together(topic, behind, bytes_max - found.bytes) if len(behind) > _TOGETHER_MIN else {}
    if not batches:
        batches = _read_each(broker, topic, behind, answers, bytes_max - found.bytes)
    if batches:
        is_created = topic.reader is None or topic.reader.settings.timestamp_type == "created"
        encode = encode_many if is_created else encode_by_broker_time
        for partition, records in zip(batches, encode(list(map(_plain, batches.values()))), strict=True):
            answers[behind[partition]]["records"] = records
            found.bytes += len(records)


def _read_together(topic: _Topic, behind: dict[int, int], bytes_max: int) -> dict[int, pa.RecordBatch]:
    """Many partitions in one pass, each its share of what the answer may hold."""
    assert topic.reader is not None
    wanted = [topic.wanted[place] for place in behind.values()]
    share = min(each.bytes_max for each in wanted)
    bytes_max = max(1, min(bytes_max, share * len(wanted)))
    messages_max = min(FETCH_MESSAGES_MAX, max(1, bytes_max // _RECORD_OVERHEAD_BYTES))
    offsets = topic.reader.offsets()
    positions = {each.partition: offsets.readable(each.partition, each.offset) for each in wanted}
    batches = topic.reader.read_shares(positions, messages_max, bytes_max)
    if not batches:
        return {}
    place = batches[0].schema.get_field_index("partition")
    first = pa.concat_arrays([batch.column(place).slice(0, 1) for batch in batches])
    return dict(zip(first.to_numpy().tolist(), batches, strict=True))


def _read_each(
    broker: Broker, topic: _Topic, behind: dict[int, int], answers: list[dict[str, Any]], bytes_max: int
) -> dict[int, pa.RecordBatch]:
    """Partitions one after another, in the order of the request; those that cannot be read say why."""
    assert topic.reader is not None
    batches: dict[int, pa.RecordBatch] = {}
    offsets = topic.reader.offsets()
    left = bytes_max
    for partition, place in behind.items():
        wanted = topic.wanted[place]
        # The first message is given however large it is.
        if left <= 0 and batches:
            break
        limit = max(1, min(wanted.bytes_max, left))
        messages_max = min(FETCH_MESSAGES_MAX, max(1, limit // _RECORD_OVERHEAD_BYTES))
        try:
            # Offsets that were lost are passed over: clients accept that the next one is higher.
            offset = offsets.readable(partition, wanted.offset)
            batch = broker.fetch(topic.name, partition, offset, messages_max, limit)
        except Exception as error:
            answers[place]["error_code"] = code_of(error)
            continue
        if batch.num_rows:
            batches[partition] = batch
            left -= content_bytes(batch) + batch.num_rows * _RECORD_OVERHEAD_BYTES
    return batches


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages with values that native producers compressed as they were before; what cannot be read stays."""
    codecs = batch.column("codec")
    if codecs.null_count == len(codecs):
        return batch
    decoded = decode_known(batch.column("value"), codecs, column_bytes_max=DECODED_BATCH_BYTES_MAX)
    batch = batch.slice(0, decoded.rows)
    return batch.set_column(batch.schema.get_field_index("value"), batch.schema.field("value"), decoded.values)

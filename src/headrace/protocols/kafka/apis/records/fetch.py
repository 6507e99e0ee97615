"""Fetch: messages of many partitions as record batches, waiting for the first of them.

A request waits on the event loop, without a thread, until there are `min_bytes`, its time is up, its client leaves or
the server stops. Each reading is done in a thread (`fetch_read`). With a session (`fetch_sessions`) a client names its
partitions once, and is answered only what is new. Since version 13 topics are named by id.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.limits import FETCH_WAIT_SECONDS_MAX
from headrace.edge.access import Lease
from headrace.protocols.kafka.apis.call import ANSWER_ELEMENT_BYTES, LOOP_ELEMENTS_MAX, Call
from headrace.protocols.kafka.apis.records.fetch_read import Fetched, read, seen
from headrace.protocols.kafka.apis.records.fetch_sessions import (
    FIRST_EPOCH,
    NO_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionError,
    has_topic_ids,
)
from headrace.protocols.kafka.apis.records.fetch_topic import FetchTopic, SessionTopic
from headrace.protocols.kafka.apis.records.fetch_watch import FetchWatch, SessionWatch
from headrace.protocols.kafka.apis.records.idle_fetch import Nothing, Unchanged
from headrace.protocols.kafka.apis.topic_ids import NO_TOPIC, TopicLookup, TopicRef
from headrace.protocols.kafka.ticks import Wait

_MILLISECONDS: Final = 1000
# Since this version an answer has an error of its own.
_VERSION_WITH_ERROR: Final = 7

Kind = TypeVar("Kind", bound=FetchTopic)


@dataclass(frozen=True, slots=True)
class _Limits:
    """How long to wait, and for how much; `is_news` if only news is answered."""

    wait_seconds: float
    bytes_min: int
    bytes_max: int
    is_news: bool


async def fetch(call: Call, request: Any) -> dict[str, Any]:
    """Read, waiting for messages."""
    epoch = getattr(request, "session_epoch", NO_EPOCH)
    bytes_max = min(max(1, request.max_bytes), call.parts.settings.fetch_bytes_max)
    wait_seconds = min(max(0, request.max_wait) / _MILLISECONDS, FETCH_WAIT_SECONDS_MAX)
    if request.min_bytes <= 0:
        wait_seconds = 0.0
    is_full = epoch in (FIRST_EPOCH, NO_EPOCH)
    limits = _Limits(wait_seconds, request.min_bytes, bytes_max, not is_full)
    try:
        return await (_full if is_full else _incremental)(call, request, epoch, limits)
    except SessionError as error:
        return {"error_code": ErrorCode[str(error)], "session_id": NO_SESSION}
    except InvalidInput:
        # The answer never has room. Clients of old versions have no field for that.
        if call.version < _VERSION_WITH_ERROR:
            raise
        return {"error_code": ErrorCode.invalid_request, "session_id": NO_SESSION}


async def _full(call: Call, request: Any, epoch: int, limits: _Limits) -> dict[str, Any]:
    """All about all partitions of a request, whose client may have a session then."""
    sessions, owner, before = call.parts.fetch_sessions, call.principal.name, getattr(request, "session_id", NO_SESSION)
    if before != NO_SESSION:
        sessions.end(before, owner)
    opened = call.principal.caller, call.parts.gate.version
    topics: dict[TopicRef, Any] = await _named(call, request, FetchTopic if epoch == NO_EPOCH else SessionTopic)
    await _open(call, topics.values())
    watch = FetchWatch(call.parts.wakeups)
    try:
        found = await _awaited(call, watch, topics.values(), limits)
    finally:
        watch.close()
    session = None
    if epoch != NO_EPOCH:
        # Requests of a session differ, and repeating the one that began it would begin another.
        call.waited.nothing = None
        session = sessions.create(owner, topics, found, asyncio.get_running_loop().time(), opened)
    return _answer(session, found)


async def _incremental(call: Call, request: Any, epoch: int, limits: _Limits) -> dict[str, Any]:
    """The news about the partitions of a session."""
    sessions, owner, now = call.parts.fetch_sessions, call.principal.name, asyncio.get_running_loop().time()
    by_id = has_topic_ids(map(_ref, request.topics))
    session = sessions.resume(request.session_id, epoch, owner, by_id, now)
    try:
        changed = await _named(call, request, SessionTopic)
        forgotten = [(_ref(topic), topic.partitions) for topic in request.forgotten_topics_data]
        elements = sum(map(len, changed.values())) + sum(len(numbers) for _, numbers in forgotten)
        new, gone = await call.work(elements, session.change, changed, forgotten)
        sessions.count(session)
        watch = await _watched(call, session, new, gone)
        watch.changed.update(dict.fromkeys(session.topics[ref] for ref in changed))
        found = await _awaited(call, watch, session.topics.values(), limits)
        return _answer(sessions.told(session, found), found)
    finally:
        session.is_busy = False
        session.rest()


def _answer(session: FetchSession | None, found: Fetched) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "session_id": NO_SESSION if session is None else session.id,
        "responses": found.responses,
    }


# The topics of a fetch


def _ref(topic: Any) -> TopicRef:
    """How a request names a topic; an id of zeros is none that a topic has."""
    return topic.topic if hasattr(topic, "topic") else topic.topic_id or NO_TOPIC


async def _named(call: Call, request: Any, kind: type[Kind]) -> dict[TopicRef, Kind]:
    """What a request asks of each topic; of a partition that it names twice it means the last."""
    elements = len(request.topics) + sum([len(topic.partitions) for topic in request.topics])
    return await call.work(elements, _by_topic, request.topics, kind)


def _by_topic(topics: Any, kind: type[Kind]) -> dict[TopicRef, Kind]:
    wanted: dict[TopicRef, dict[int, Any]] = {}
    for topic in topics:
        wanted.setdefault(_ref(topic), {}).update((each.partition, each) for each in topic.partitions)
    return {ref: kind(ref, partitions) for ref, partitions in wanted.items() if partitions}


async def _open(call: Call, topics: Collection[FetchTopic]) -> None:
    """Look up topics and the right to read them."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    if lookup.is_quick([topic.ref for topic in topics]):
        _open_all(call, lookup, topics)
    else:
        await call.parts.bridge.call(_open_all, call, lookup, topics)


def _open_all(call: Call, lookup: TopicLookup, topics: Iterable[FetchTopic]) -> None:
    for topic in topics:
        topic.reader = topic.error = None
        try:
            topic.name = lookup.name(topic.ref)
            call.principal.require("read", topic.name)
            topic.reader = lookup.reader(topic.name)
        except HeadraceError as error:
            # Its traceback would keep all topics of the request, until a garbage collection.
            topic.error = error.with_traceback(None)


async def _watched(
    call: Call, session: FetchSession, new: Iterable[SessionTopic], gone: Iterable[SessionTopic]
) -> SessionWatch:
    """The watch of a session, with its topics open: new ones, those that could not be read, all of another caller."""
    opened, watch = (call.principal.caller, call.parts.gate.version), session.watch
    is_other = session.opened != opened
    if watch is None or not watch.is_open or is_other:
        if watch is not None:
            watch.close()
        watch = session.watch = SessionWatch(call.parts.wakeups)
        unwatched: list[FetchTopic] = [*session.topics.values()]
    else:
        unwatched = [*new, *watch.broken()]
        for topic in (*gone, *unwatched):
            watch.drop(topic)
    watch.use(session.topics.values())
    try:
        await _open(call, [topic for topic in unwatched if is_other or topic.reader is None or topic.error is not None])
        await watch.add(unwatched)
    except BaseException:
        # Topics that are not watched would have no news for ever.
        watch.close()
        raise
    session.opened = opened
    return watch


# Waiting


async def _awaited(call: Call, watch: FetchWatch, topics: Collection[FetchTopic], limits: _Limits) -> Fetched:
    wait_seconds = max(0.0, limits.wait_seconds - call.waited.seconds)
    name = next((topic.name for topic in topics if topic.reader is not None), None)
    if wait_seconds == 0 or name is None:
        chosen = list(watch.changed) if limits.is_news else topics
        found = await _bounded(call, chosen, limits) if chosen else Fetched([])
        await watch.find_messages()
        return found
    # One stands for all: if its lease ends because the token does, so do the others.
    lease = call.principal.lease("read", name)
    with call.principal.stream(), call.gone.waking(watch.event), call.parts.leases.waking(lease, watch.event):
        waiting = call.parts.ticks.begin(watch.event, wait_seconds)
        try:
            if not limits.is_news:
                await watch.add(topics)
            found = await _until_enough(call, watch, topics, limits, waiting, lease)
            if found.is_nothing:
                call.waited.nothing = _nothing(topics, limits.wait_seconds, lease)
            return found
        finally:
            call.parts.ticks.end(waiting)


def _nothing(topics: Collection[FetchTopic], wait_seconds: float, lease: Lease) -> Nothing | None:
    """What to wait for if the same is asked again; None if that is not known."""
    for topic in topics:
        topic.make_columns()
    unchanged = [
        Unchanged(topic.reader, topic.numbers, topic.seen)
        for topic in topics
        if topic.reader is not None and topic.seen is not None
    ]
    return Nothing(unchanged, wait_seconds, lease) if len(unchanged) == len(topics) else None


async def _until_enough(
    call: Call, watch: FetchWatch, topics: Collection[FetchTopic], limits: _Limits, waiting: Wait, lease: Lease
) -> Fetched:
    """Wait until there is enough, or the time is over."""
    while True:
        waiting.event.clear()
        is_over = waiting.is_over or call.parts.bridge.draining.has_begun or call.gone.has_begun
        has_messages = await watch.find_messages()
        chosen = list(watch.changed) if limits.is_news else topics
        if is_over and not has_messages:
            # Most fetches end like this: no thread is needed for it.
            found = await _seen(call, chosen)
            found.is_nothing = not limits.is_news and waiting.is_over and not found.errors
            return found
        if has_messages:
            found = await _bounded(call, chosen, limits)
            if is_over or found.errors or found.bytes >= limits.bytes_min:
                return found
            call.room.shrink()
        await waiting.event.wait()
        if lease.version != call.parts.gate.version:
            _check_leases(call, topics, lease)


def _check_leases(call: Call, topics: Iterable[FetchTopic], lease: Lease) -> None:
    """Raise if the caller may not read all of its topics any more."""
    lease.version = call.parts.gate.version
    if not call.principal.is_same():
        for topic in topics:
            if topic.reader is not None:
                call.principal.lease("read", topic.name).check()


async def _seen(call: Call, topics: Collection[FetchTopic]) -> Fetched:
    """What is known of topics, without messages."""
    elements = sum(map(len, topics))
    if elements > LOOP_ELEMENTS_MAX:
        await call.hold(elements)
    return await call.work(elements, seen, topics)


async def _bounded(call: Call, topics: Collection[FetchTopic], limits: _Limits) -> Fetched:
    """Read once, with room for what is read until it is written to the client.

    One message may be larger than the limit. If there is no room for it, it is read again once there is: nobody holds
    what is not counted. One that is larger than all that a caller may have takes all of that.
    """
    room, share = call.room, call.room.budget.share_max
    elements = sum(map(len, topics)) + len(topics)
    if limits.is_news:
        elements = min(elements, LOOP_ELEMENTS_MAX)
    described = elements * ANSWER_ELEMENT_BYTES
    need = described + limits.bytes_max
    while True:
        # If even what is said of the partitions cannot have room, the fetch is refused.
        await room.take(max(described, min(need, share)))
        size_max = math.inf if room.bytes >= share else room.bytes
        bridge = call.parts.bridge
        found = await bridge.call(read, bridge.broker, topics, limits.bytes_max, size_max)
        need = found.size
        if need <= size_max:
            room.is_large |= found.elements > LOOP_ELEMENTS_MAX
            room.shrink(need)
            return found
        del found
        room.shrink()

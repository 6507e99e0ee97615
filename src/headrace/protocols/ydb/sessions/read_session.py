"""StreamRead: a client that reads topics within the credit it gives, and commits what it has handled.

Two tasks share the state of a session. One takes what the client sends: credit, starts, commits, stops. The other is
the only one that sends: it renews memberships, starts and stops partitions, commits, and reads messages, each time that
something may have changed. So what the client commits is durable before it is told so, and a client that does not
receive has one response in memory, and loses its partitions when its membership runs out.

    given by the group  ► start_partition_session_request ► (client) ► messages
    revoked by it       ► stop, graceful ► (client) ► acknowledged to the group, which gives it to another member
    not given up, lost  ► stop, at once

Credit is in bytes, for all partitions of a session; one message at least is sent while there is any. A consumer that is
moved by another ends the session as expired: the client has messages in its buffer that it would still hand out.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from headrace.core.errors import HeadraceError
from headrace.core.limits import TOPICS_MAX
from headrace.edge.access import Lease, Principal
from headrace.edge.event_loop.long_poll import wait
from headrace.protocols.ydb.call import YdbCall, first_of, parsed
from headrace.protocols.ydb.names import topic_of
from headrace.protocols.ydb.services.topics import microseconds_of, unknown_consumer
from headrace.protocols.ydb.sessions.partition_session import PartitionSession
from headrace.protocols.ydb.sessions.read_topic import (
    RELEASE_SECONDS,
    RENEW_SECONDS,
    ReadTopic,
    check_unmoved,
    chosen_sessions,
    join,
    opened,
    renew,
)
from headrace.protocols.ydb.sessions.responses import response
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import topic as messages

_Read: Final = messages.StreamReadMessage
_TOPICS_OF_SESSION_MAX: Final = 100
_ANSWERS_MAX: Final = 10_000
_CREDIT_MAX: Final = 1 << 62
# After which a session looks again whether a move is done.
_MOVE_SECONDS: Final = 0.01
assert _TOPICS_OF_SESSION_MAX < TOPICS_MAX


async def stream_read(call: YdbCall) -> None:
    """Serve a read session."""
    message = await call.first(_Read.FromClient)
    if message.WhichOneof("client_message") != "init_request":
        raise YdbRefusal(Status.BAD_REQUEST, "the first message of a session must be init_request")
    session = await _open(call, message.init_request)
    with call.principal.stream():
        await session.run()


async def _open(call: YdbCall, init: Any) -> _ReadSession:
    wanted = init.topics_read_settings
    if not 1 <= len(wanted) <= _TOPICS_OF_SESSION_MAX:
        raise YdbRefusal(Status.BAD_REQUEST, f"a session reads 1 to {_TOPICS_OF_SESSION_MAX} topics, not {len(wanted)}")
    member = str(uuid.uuid4())
    broker, bridge = call.parts.bridge.broker, call.parts.bridge
    topics: dict[str, ReadTopic] = {}
    for each in wanted:
        name = topic_of(each.path, call.database)
        _require(call.principal, name, init.consumer)
        if not init.consumer and not each.partition_ids:
            raise YdbRefusal(Status.BAD_REQUEST, "a session without a consumer must name the partitions that it reads")
        # Another server may have made the topic again, or larger.
        await bridge.call(broker.topics.find, name, True)
        reader = await bridge.reader(name)
        if init.consumer and init.consumer not in await bridge.call(broker.list_groups, name):
            raise unknown_consumer(name, init.consumer)
        from_us = microseconds_of(each.read_from)
        if each.HasField("max_lag"):
            from_us = max(from_us, time.time_ns() // 1000 - microseconds_of(each.max_lag))
        chosen = frozenset(each.partition_ids)
        topics[name] = ReadTopic(each.path, name, reader, init.consumer, member, len(topics), chosen, max(0, from_us))
    if len(topics) < len(wanted):
        raise YdbRefusal(Status.BAD_REQUEST, "a session names a topic twice")
    return _ReadSession(call, member, list(topics.values()))


def _require(principal: Principal, name: str, consumer: str) -> None:
    if consumer:
        principal.require("join", name, consumer)
    else:
        principal.require("read", name)


class _ReadSession:
    """An open session. Belongs to the event loop, except `moving`."""

    def __init__(self, call: YdbCall, member: str, topics: Sequence[ReadTopic]) -> None:
        self._call = call
        self._id = member
        self._topics = topics
        self._bridge = call.parts.bridge
        self._broker = call.parts.bridge.broker
        self._event = asyncio.Event()
        self._credit = 0
        # Partition sessions by number, which are never given again.
        self._sessions: dict[int, tuple[ReadTopic, PartitionSession]] = {}
        self._numbers = 0
        # Answers that need nothing but to be sent.
        self._answers: list[Any] = []
        # The topic that is read first.
        self._turn = 0
        self._loop = asyncio.get_running_loop()
        # How often others that name this session began to move its consumer, and were done.
        self._moves_lock = threading.Lock()
        self._moves_begun = self._moves_ended = 0

    @contextmanager
    def moving(self, topic: str, partition: int, offset: int) -> Iterator[None]:
        """While the consumer is moved by one who names this session, which goes on."""
        with self._moves_lock:
            self._moves_begun += 1
        for each in self._topics:
            session = each.sessions.get(partition) if each.name == topic else None
            if session is not None:
                session.ranges.move(offset)
        try:
            yield
        finally:
            with self._moves_lock:
                self._moves_ended += 1

    async def run(self) -> None:
        """Serve until the client ends its side, or the first error."""
        parts = self._call.parts
        parts.sessions[self._id] = self
        try:
            with ExitStack() as stack:
                stack.enter_context(self._bridge.draining.waking(self._event))
                for each in self._topics:
                    stack.callback(parts.wakeups.unwatch, self._event, parts.wakeups.watch(self._event, each.reader))
                await self._send(init_response=_Read.InitResponse(session_id=self._id))
                await first_of(self._receive(), self._serve(), self._call.permitted(self._leases))
        finally:
            del parts.sessions[self._id]
            await asyncio.shield(self._leave())

    def _leases(self, principal: Principal) -> list[Lease]:
        return [
            principal.lease("join", each.name, each.consumer) if each.consumer else principal.lease("read", each.name)
            for each in self._topics
        ]

    async def _leave(self) -> None:
        """Let other members have the partitions at once."""
        for each in self._topics:
            if each.is_member:
                with suppress(HeadraceError):
                    await self._bridge.call(self._broker.leave_group, each.name, each.consumer, self._id)

    # In

    async def _receive(self) -> None:
        while (data := await self._call.read()) is not None:
            try:
                message = parsed(_Read.FromClient, data)
            finally:
                self._call.release(len(data))
            kind = message.WhichOneof("client_message")
            if kind == "read_request":
                self._add_credit(message.read_request.bytes_size)
            elif kind == "commit_offset_request":
                self._take_commits(message.commit_offset_request)
            elif kind == "start_partition_session_response":
                self._started(message.start_partition_session_response)
            elif kind == "stop_partition_session_response":
                self._stopped(message.stop_partition_session_response.partition_session_id)
            elif kind == "partition_session_status_request":
                self._tell_status(message.partition_session_status_request.partition_session_id)
            elif kind == "update_token_request":
                await self._call.renew(message.update_token_request.token)
                self._answer(update_token_response=messages.UpdateTokenResponse())
            elif kind != "direct_read_ack":
                raise YdbRefusal(Status.BAD_REQUEST, "a session is opened once")
            self._event.set()
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        """A client that asks more than it receives answers waits."""
        while len(self._answers) > _ANSWERS_MAX:
            await asyncio.sleep(0.01)

    def _add_credit(self, size: int) -> None:
        if size <= 0:
            raise YdbRefusal(Status.BAD_REQUEST, f"a credit of {size} bytes is none")
        self._credit = min(self._credit + size, _CREDIT_MAX)

    def _take_commits(self, request: Any) -> None:
        for each in request.commit_offsets:
            topic, session = self._sessions.get(each.partition_session_id, (None, None))
            if topic is None or session is None:
                # It was taken away: what is committed late does not count.
                continue
            if not topic.consumer:
                raise YdbRefusal(Status.BAD_REQUEST, "a session without a consumer commits nothing")
            for offsets in each.offsets:
                session.take(offsets.start, offsets.end)

    def _started(self, response: Any) -> None:
        _, session = self._sessions.get(response.partition_session_id, (None, None))
        if session is None or session.position is not None:
            return
        wanted = [session.ranges.committed, session.start]
        if response.HasField("read_offset"):
            wanted.append(response.read_offset)
        if response.HasField("commit_offset") and response.commit_offset > session.ranges.committed:
            session.take(session.ranges.committed, response.commit_offset)
            wanted.append(response.commit_offset)
        session.position = max(wanted)

    def _stopped(self, number: int) -> None:
        topic, session = self._sessions.get(number, (None, None))
        if topic is not None and session is not None and session.is_stopping:
            session.is_stopped = True
            topic.renew_at = 0.0

    def _tell_status(self, number: int) -> None:
        topic, session = self._sessions.get(number, (None, None))
        if topic is None or session is None:
            return
        start, end = topic.reader.offsets().by_partition()[session.partition]
        status = _Read.PartitionSessionStatusResponse(
            partition_session_id=number,
            partition_offsets=messages.OffsetsRange(start=start, end=end),
            committed_offset=session.ranges.committed,
            read_offset=session.ranges.committed if session.position is None else session.position,
        )
        status.write_time_high_watermark.GetCurrentTime()
        self._answer(partition_session_status_response=status)

    def _answer(self, **content: Any) -> None:
        self._answers.append(_Read.FromServer(status=Status.SUCCESS, **content))

    # Out

    async def _serve(self) -> None:
        for each in self._topics:
            await self._bridge.call(join, self._broker, each)
            if not each.is_member:
                committed = await self._bridge.call(chosen_sessions, self._broker, each)
                await self._start(each, sorted(each.chosen), committed)
        while True:
            self._event.clear()
            if self._bridge.draining.has_begun:
                raise YdbRefusal(Status.UNAVAILABLE, "the server is stopping")
            for each in self._topics:
                await self._commit(each)
                if each.is_due(self._loop.time()):
                    await self._renew(each)
                await self._end_late_stops(each)
            while self._answers:
                await self._call.write(self._answers.pop(0))
            if not await self._send_messages():
                await wait(self._event, self._seconds_left())

    def _seconds_left(self) -> float:
        due = [each.renew_at for each in self._topics if each.is_member]
        due += [session.stop_by for _, session in self._sessions.values() if session.is_stopping]
        return max(0.0, min(due, default=self._loop.time() + RENEW_SECONDS) - self._loop.time())

    async def _send(self, **content: Any) -> None:
        await self._call.write(_Read.FromServer(status=Status.SUCCESS, **content))

    # Partitions

    async def _renew(self, topic: ReadTopic) -> None:
        held = topic.held()
        for session in topic.in_sessions():
            if session.is_stopped:
                self._forget(topic, session)
        ended = self._moves_ended
        present, committed, is_moved = await self._bridge.call(renew, self._broker, topic, held)
        if is_moved and self._moves_begun > ended:
            # By one who names this session: how far that is cannot be known before it is done.
            topic.renew_at = self._loop.time() + _MOVE_SECONDS
            return
        topic.renew_at = self._loop.time() + RENEW_SECONDS
        if is_moved:
            check_unmoved(topic, committed)
        topic.generation = present.generation
        owned = {*present.partitions, *present.revoking}
        for session in topic.in_sessions():
            if session.partition not in owned:
                await self._stop_at_once(topic, session)
            elif session.partition in present.revoking and not session.is_stopping:
                await self._ask_to_stop(session)
        if any(partition not in topic.sessions for partition in present.revoking):
            # Never started, so it can be given up now that its generation is known.
            topic.renew_at = 0.0
        new = [partition for partition in present.partitions if partition not in topic.sessions]
        if new:
            # Another member may have committed until it let go.
            committed = await self._bridge.call(self._broker.committed, topic.name, topic.consumer)
            await self._start(topic, new, committed)

    async def _start(self, topic: ReadTopic, partitions: Sequence[int], committed: Mapping[int, int]) -> None:
        for partition in partitions:
            self._numbers += 1
            session = await self._bridge.call(opened, topic, self._numbers, partition, committed)
            topic.sessions[partition] = session
            self._sessions[session.id] = topic, session
            start, end = topic.reader.offsets().by_partition()[partition]
            place = _Read.PartitionSession(partition_session_id=session.id, path=topic.path, partition_id=partition)
            await self._send(
                start_partition_session_request=_Read.StartPartitionSessionRequest(
                    partition_session=place,
                    committed_offset=session.ranges.committed,
                    partition_offsets=messages.OffsetsRange(start=start, end=end),
                )
            )

    async def _ask_to_stop(self, session: PartitionSession) -> None:
        session.is_stopping = True
        session.stop_by = self._loop.time() + RELEASE_SECONDS
        await self._send(stop_partition_session_request=_stop(session, graceful=True))

    async def _stop_at_once(self, topic: ReadTopic, session: PartitionSession) -> None:
        self._forget(topic, session)
        if not session.is_stopped:
            await self._send(stop_partition_session_request=_stop(session, graceful=False))

    async def _end_late_stops(self, topic: ReadTopic) -> None:
        for session in topic.in_sessions():
            if session.is_stopping and not session.is_stopped and self._loop.time() >= session.stop_by:
                topic.renew_at = 0.0
                await self._stop_at_once(topic, session)

    def _forget(self, topic: ReadTopic, session: PartitionSession) -> None:
        topic.sessions.pop(session.partition, None)
        self._sessions.pop(session.id, None)

    # Commits

    async def _commit(self, topic: ReadTopic) -> None:
        """Commit how far the ranges reach now; what the group refuses is lost to another session."""
        if not topic.consumer or not any(len(session.ranges) for session in topic.sessions.values()):
            return
        starts = topic.reader.offsets().start
        reached = {
            partition: reach
            for partition, session in topic.sessions.items()
            if (reach := session.ranges.reach(starts[partition].item())) > session.ranges.committed
        }
        if not reached:
            return
        sessions = {partition: topic.sessions[partition] for partition in reached}
        member, generation = (topic.member, topic.generation) if topic.is_member else (None, None)
        outcome = await self._bridge.call(
            self._broker.commit_offsets, topic.name, topic.consumer, reached, member, generation, True
        )
        answered = []
        for partition, session in sessions.items():
            if partition in outcome.refused:
                # The group was moved, or has given the partition to another: the membership tells.
                topic.renew_at = 0.0
                self._event.set()
                continue
            session.ranges.commit(reached[partition])
            answered.append(
                _Read.CommitOffsetResponse.PartitionCommittedOffset(
                    partition_session_id=session.id, committed_offset=reached[partition]
                )
            )
        if answered:
            await self._send(commit_offset_response=_Read.CommitOffsetResponse(partitions_committed_offsets=answered))

    # Messages

    async def _send_messages(self) -> bool:
        """Send one response, if there is credit and anything to read."""
        if self._credit <= 0:
            return False
        for place in range(len(self._topics)):
            topic = self._topics[(self._turn + place) % len(self._topics)]
            positions = topic.reading()
            if positions and topic.reader.is_behind(positions) and await self._send_some(topic, positions):
                self._turn += place + 1
                return True
        return False

    async def _send_some(self, topic: ReadTopic, positions: dict[int, int]) -> bool:
        answers, owner = self._call.parts.envelope.answers, self._call.principal.name
        room = min(self._credit, self._call.parts.settings.fetch_bytes_max)
        await answers.take(room, owner)
        try:
            numbers = {partition: topic.sessions[partition].id for partition in positions}
            found = await self._bridge.call(response, topic, positions, numbers, room)
            if found is None:
                return False
            data, size, after = found
            if len(data) > room:
                # A message that is larger than the credit.
                more = len(data) - room
                await answers.take(more, owner)
                room += more
            self._credit -= size
            for partition, offset in after.items():
                if (session := topic.sessions.get(partition)) is not None and session.position is not None:
                    session.position = max(session.position, offset)
            await self._call.write(data)
        finally:
            answers.give_back(room, owner)
        return True


def _stop(session: PartitionSession, graceful: bool) -> Any:
    return _Read.StopPartitionSessionRequest(
        partition_session_id=session.id, graceful=graceful, committed_offset=session.ranges.committed
    )

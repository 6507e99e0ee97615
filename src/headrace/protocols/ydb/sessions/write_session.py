"""StreamWrite: one producer that writes to one partition.

    init_request    ► the producer of the source is opened: what a predecessor wrote is finished, and its next write
                      is refused (the producer epoch); the source's partition, or the next one in turn
    write_request   ► rows ► a submission in the lane of the session: after a failure nothing behind it is written
    outcomes        ► in the order of the requests, an ack for each message

A session without a producer id deduplicates nothing. What waits for its commit is bounded by messages and bytes; then
the stream is not read. A session ends with the first error of a request, as a status; its client reconnects, learns the
last number that was written, and sends the rest again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.submission import Fence, Lane, Submission
from headrace.core.errors import PartitionNotFound
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.edge.access import Lease, Principal
from headrace.edge.event_loop.loop_sink import Outcome
from headrace.protocols.ydb.call import YdbCall, first_of
from headrace.protocols.ydb.messages.acks import acks_of, write_response
from headrace.protocols.ydb.messages.incoming import ClientMessages, FromClient, decoded, rows_of, session_attributes
from headrace.protocols.ydb.names import CODECS, CUSTOM_CODECS, PARTITION_GROUP, topic_of
from headrace.protocols.ydb.services.kept import codec_numbers, kept_topic
from headrace.protocols.ydb.services.topics import GENERATION
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import topic

_FromServer: Final = topic.StreamWriteMessage.FromServer
# Requests of one session that wait for their commit.
_REQUESTS_MAX: Final = 1_000
# Acks in one response, which several requests may share.
_ACKS_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class _Request:
    """A request that is being written: its numbers, its size, and its outcome once there is one."""

    seqnos: list[int]
    size: int
    submission: Submission | None = None
    outcome: Outcome | None = None


async def stream_write(call: YdbCall) -> None:
    """Serve a write session."""
    message = await call.first(FromClient)
    if message.WhichOneof("client_message") != "init_request":
        raise YdbRefusal(Status.BAD_REQUEST, "the first message of a session must be init_request")
    session = await _open(call, message.init_request)
    with call.principal.stream():
        try:
            await call.write(session.opening())
            await session.run()
        finally:
            session.close()


async def _open(call: YdbCall, init: Any) -> _WriteSession:
    name, broker = topic_of(init.path, call.database), call.parts.bridge.broker
    producer_id = init.producer_id
    call.principal.require("publish", name, producer=producer_id or None)
    place = init.WhichOneof("partitioning")
    partition = None
    if place == "partition_id":
        partition = init.partition_id
    elif place == "partition_with_generation":
        partition = init.partition_with_generation.partition_id
        if init.partition_with_generation.generation != GENERATION:
            raise YdbRefusal(Status.BAD_REQUEST, "the partition has another generation: describe the topic again")
    group = init.message_group_id if partition is None else f"{PARTITION_GROUP}{partition}"
    # Another server may have made the topic again, or larger.
    await call.parts.bridge.call(broker.topics.find, name, True)
    opening = await call.parts.bridge.call(broker.open_producer, name, producer_id, group if producer_id else "")
    if partition is not None and not 0 <= partition < opening.partitions:
        raise PartitionNotFound(name, partition, opening.partitions)
    reader = await call.parts.bridge.reader(name)
    if partition is None:
        partition = opening.partition
    if partition is None:
        # A new source takes the next partition in turn, and so does a session without one.
        turn = call.parts.turns.get(reader.topic_id, reader.topic_id)
        call.parts.turns[reader.topic_id] = turn + 1
        partition = turn % opening.partitions
    fence = Fence((producer_id, group), opening.epoch) if producer_id else None
    settings = reader.settings
    codecs = codec_numbers(kept_topic(settings.annotations), settings.codecs)
    attributes = session_attributes(init.write_session_meta)
    return _WriteSession(call, name, fence, opening.last_seqno or 0, partition, codecs, attributes)


class _WriteSession:
    """An open session. Belongs to the event loop."""

    def __init__(
        self,
        call: YdbCall,
        name: str,
        fence: Fence | None,
        last_seqno: int,
        partition: int,
        codecs: list[int],
        attributes: Any,
    ) -> None:
        self._call = call
        self._name = name
        self._fence = fence
        self._last_seqno = last_seqno
        self._partition = partition
        self._codecs = codecs
        self._attributes = attributes
        self._bridge = call.parts.bridge
        self._intake: TopicIntake = self._bridge.broker.intake(name)
        self._lane = Lane()
        self._requests: deque[_Request] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False
        # Answers that are not acks, between those.
        self._token_answers = 0

    def opening(self) -> Any:
        """The answer to init_request."""
        opened = topic.StreamWriteMessage.InitResponse(
            last_seq_no=self._last_seqno,
            session_id=f"{uuid.uuid4()}",
            partition_id=self._partition,
            supported_codecs=topic.SupportedCodecs(codecs=self._codecs),
        )
        return _FromServer(status=Status.SUCCESS, init_response=opened)

    async def run(self) -> None:
        """Serve until the client ends its side and has all acks, or the first error."""
        await first_of(self._receive(), self._acknowledge(), self._call.permitted(self._leases), self._stopping())

    def close(self) -> None:
        """What no commit has taken yet is not written."""
        for request in self._requests:
            if request.submission is not None and request.outcome is None:
                self._bridge.sink.withdraw(self._intake, request.submission)
        self._requests.clear()

    def _leases(self, principal: Principal) -> list[Lease]:
        producer = None if self._fence is None else self._fence.source[0]
        return [principal.lease("publish", self._name, producers=[producer])]

    async def _stopping(self) -> None:
        event = asyncio.Event()
        with self._bridge.draining.waking(event):
            if not self._bridge.draining.has_begun:
                await event.wait()
        raise YdbRefusal(Status.UNAVAILABLE, "the server is stopping")

    # In

    async def _receive(self) -> None:
        while True:
            while len(self._requests) >= _REQUESTS_MAX:
                self._changed.clear()
                await self._changed.wait()
            data = await self._call.read()
            if data is None:
                self._is_ended = True
                self._changed.set()
                # Until the last ack is sent.
                await asyncio.Event().wait()
                return
            message = decoded(data) if len(data) <= LOOP_BYTES_MAX else await self._bridge.call(decoded, data)
            if isinstance(message, ClientMessages):
                await self._write(message, len(data))
                continue
            self._call.release(len(data))
            if message.WhichOneof("client_message") != "update_token_request":
                raise YdbRefusal(Status.BAD_REQUEST, "a session is opened once, and then takes write requests")
            await self._call.renew(message.update_token_request.token)
            self._token_answers += 1
            self._changed.set()

    async def _write(self, written: ClientMessages, size: int) -> None:
        if written.has_transaction:
            raise YdbRefusal(Status.UNSUPPORTED, "there are no transactions here: write without one")
        self._check_codec(written.codec)
        if any(each.WhichOneof("partitioning") for each in written.messages):
            raise YdbRefusal(Status.BAD_REQUEST, "a session writes to one partition, which its first message chooses")
        await self._hold_back(size)
        source = None if self._fence is None else self._fence.source
        arguments = written, source, self._partition, self._attributes
        batch = rows_of(*arguments) if size <= LOOP_BYTES_MAX else await self._bridge.call(rows_of, *arguments)
        request = _Request(written.seqnos, size)
        if not request.seqnos:
            self._call.release(size)
            return
        sink = self._bridge.sink
        account = self._call.principal.name
        request.submission = Submission([batch], fence=self._fence, account=account, lane=self._lane, sink=sink)

        def tell(outcome: Outcome) -> None:
            request.outcome = outcome
            self._changed.set()

        sink.submit(self._intake, request.submission, tell)
        self._requests.append(request)

    def _check_codec(self, codec: int) -> None:
        is_known = codec in CODECS or codec in CUSTOM_CODECS
        if not is_known or (self._codecs and codec not in self._codecs):
            raise YdbRefusal(Status.BAD_REQUEST, f"codec {codec} is not allowed in topic {self._name[:100]!r}")

    async def _hold_back(self, size: int) -> None:
        """Wait until the caller may publish more: clients take that as a slow server."""
        principal = self._call.principal
        rate = principal.limits.publish_bytes
        while (seconds := rate.seconds_until_free(principal.name)) > 0:
            principal.count_refusal("limits.publish_bytes_per_second")
            await asyncio.sleep(min(seconds, 1.0))
        rate.spend(principal.name, size)

    # Out

    async def _acknowledge(self) -> None:
        while True:
            while self._token_answers:
                self._token_answers -= 1
                await self._call.write(
                    _FromServer(status=Status.SUCCESS, update_token_response=topic.UpdateTokenResponse())
                )
            acks, count = bytearray(), 0
            while self._requests and self._requests[0].outcome is not None and count < _ACKS_MAX:
                count += len(self._requests[0].seqnos)
                acks += self._acks(self._requests.popleft())
            if count:
                self._changed.set()
                await self._call.write(write_response(self._partition, acks))
                continue
            if self._is_ended and not self._requests:
                return
            self._changed.clear()
            await self._changed.wait()

    def _acks(self, request: _Request) -> bytes:
        self._call.release(request.size)
        outcome = request.outcome
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None, "the request is decided"
        return acks_of(request.seqnos, outcome)

"""An upload: messages and batches are put into the intake of their topic as they arrive, and answered in their order.

    put      the task of the connection: decoded and checked, then in line; the next frame is read meanwhile
    _tell    called on the event loop for each outcome: the answers that are due, in one write

So small messages share a sync with all that wait for the same topic. At most so many wait for their outcome, and a
client that does not read its answers is not read on.

An upload is a lane. An invalid message gets its error as its answer, and the upload continues. Any other error is
answered too and ends the publishing: nothing behind it is written, so that a producer with seqnos can start again there
and loses none; the rest is dropped. Whoever sends too fast is read on later, which holds the sender back. What was put
in line is written even if the client leaves: it cannot know how far it came in any case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import ExitStack
from typing import Final

import pyarrow as pa

from headrace import tracing
from headrace.broker.checks import check_commit_key, check_epoch
from headrace.broker.publish.submission import Fence, Lane, Submission
from headrace.core.errors import InvalidInput
from headrace.core.lists import binaries, maps, repeated, whole_numbers
from headrace.core.messages import ATTRIBUTES, TIMESTAMP
from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.core.publish.state import CommitKey
from headrace.edge.access import Lease, Principal
from headrace.edge.arrow import Stream
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.edge.event_loop.frames import Frame, Frames
from headrace.edge.event_loop.loop_sink import Outcome
from headrace.edge.limits import Traffic
from headrace.protocols.native.errors import refusal
from headrace.protocols.native.parts import NativeParts
from headrace.wire import native
from headrace.wire.answers import encode_receipts
from headrace.wire.tickets import Publish

# How much may wait for its outcome.
AHEAD_FRAMES: Final = 256
AHEAD_BYTES: Final = 8 << 20
AHEAD_ROWS: Final = 1 << 20
# Larger ones are decoded in a thread.
LOOP_BYTES_MAX: Final = 16 << 10
# Of one receipt among many.
_RECEIPT_BYTES: Final = 32


class _Entered:
    """A frame that is to be answered: what it holds until then, and its outcome once there is one."""

    __slots__ = ("held", "outcome", "rows", "size", "span")

    def __init__(self, size: int, rows: int = 0, held: HeldBytes | None = None) -> None:
        self.size = size
        self.rows = rows
        self.held = held
        self.span: ExitStack | None = None
        self.outcome: Outcome | None = None


class FrameUpload:
    """The publishing of one stream. Belongs to the event loop."""

    def __init__(
        self,
        parts: NativeParts,
        command: Publish,
        principal: Principal,
        lease: Lease,
        frames: Frames,
        traffic: Traffic,
    ) -> None:
        self._parts = parts
        self._command = command
        self._principal = principal
        self._lease = lease
        self._frames = frames
        self._traffic = traffic
        self._lane = Lane()
        self._number = command.first_number
        self._fence: Fence | None = None
        if command.epoch is not None:
            self._fence = Fence((command.producer_id, command.message_group_id), check_epoch(command.epoch))
        self._entered: deque[_Entered] = deque()
        self._bytes = self._rows = 0
        self._room = AnswerRoom(parts.envelope.answers, principal.name)
        self._changed = asyncio.Event()
        # Whether nothing more is put in, because of what is or will be the last answer.
        self._is_refused = False

    async def put(self, received: Frame) -> None:
        """Put in a frame, waiting for room, or drop it if the publishing has ended."""
        size = len(received)
        held = HeldBytes(self._parts.envelope.decompressed, self._principal.name)
        try:
            while self._is_full():
                self._changed.clear()
                await self._changed.wait()
            # Answers that the client does not read hold it back.
            await self._frames.received()
            self._shrink_room()
            if self._is_refused:
                self._let_go(size, held)
                return
            await self._hold_back(size)
            await self._check_access()
            submission = await self._submission(received, held)
        except (ConnectionError, asyncio.CancelledError):
            self._let_go(size, held)
            raise
        except Exception as error:
            self._let_go(size, held)
            self._tell(self._enter(_Entered(0)), error)
        else:
            self._submit(submission, self._enter(_Entered(size, submission.rows, held)))

    async def wait(self) -> None:
        """Wait until all that was put in has its outcome, and hold nothing any more."""
        try:
            while self._entered:
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._room.shrink()

    def _is_full(self) -> bool:
        is_large = self._bytes >= AHEAD_BYTES or self._rows >= AHEAD_ROWS
        return bool(self._entered) and (is_large or len(self._entered) >= AHEAD_FRAMES)

    async def _hold_back(self, size: int) -> None:
        """Wait until the caller may publish more."""
        rate = self._principal.limits.publish_bytes
        while (seconds := rate.seconds_until_free(self._principal.name)) > 0:
            self._principal.count_refusal("limits.publish_bytes_per_second")
            await asyncio.sleep(min(seconds, 1.0))
        rate.spend(self._principal.name, size)

    async def _check_access(self) -> None:
        """Raise if the caller lost the right; who the caller is counts anew whenever the tokens were read again."""
        if await self._parts.leases.keep(self._lease):
            self._principal.renew()

    # Decoding

    async def _submission(self, received: Frame, held: HeldBytes) -> Submission:
        with memoryview(received) as view:
            content = bytes(view[1:])
        batch = self._message(content) if received[:1] == native.MESSAGE else await self._decoded(content, held)
        self._principal.require_producers("publish", self._command.topic, batch)
        await self._room.take(batch.num_rows * _RECEIPT_BYTES)
        command, key = self._command, None
        if not self._parts.bridge.broker.knows_topic(command.topic):
            await self._parts.bridge.know(command.topic)
        if self._fence is None and command.writer is not None:
            key = check_commit_key(CommitKey(command.writer, self._number))
        self._number += 1
        sink, account = self._parts.bridge.sink, self._principal.name
        return Submission([batch], key, fence=self._fence, lane=self._lane, account=account, sink=sink)

    def _message(self, content: bytes) -> pa.RecordBatch:
        """One message as a batch, with the source of its stream."""
        value, key, partition, created_us, seqno, attributes = native.decode_record(content)
        columns = {"value": binaries([value])}
        if key is not None:
            columns["key"] = binaries([key])
        if attributes is not None:
            columns["attributes"] = maps([attributes], ATTRIBUTES)
        if created_us is not None:
            columns["created_at"] = whole_numbers(pa.int64(), [created_us]).view(TIMESTAMP)
        if partition is not None:
            columns["partition"] = whole_numbers(pa.int32(), [partition])
        if seqno is not None:
            columns["seqno"] = whole_numbers(pa.int64(), [seqno])
        if self._command.producer_id:
            columns["producer_id"] = repeated(self._command.producer_id, 1)
            columns["message_group_id"] = repeated(self._command.message_group_id, 1)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    async def _decoded(self, content: bytes, held: HeldBytes) -> pa.RecordBatch:
        """A batch; what it claims beyond its bytes is held before, and a large one is not decoded on the event loop."""
        bridge, is_small = self._parts.bridge, len(content) <= LOOP_BYTES_MAX
        most = self._parts.settings.records_bytes_max
        stream = Stream(content, most) if is_small else await bridge.call(Stream, content, most)
        await held.take(max(0, stream.claims.bytes - len(content)))
        return stream.batch() if stream.claims.bytes <= LOOP_BYTES_MAX else await bridge.call(stream.batch)

    # Outcomes

    def _enter(self, entered: _Entered) -> _Entered:
        self._entered.append(entered)
        self._bytes += entered.size
        self._rows += entered.rows
        return entered

    def _submit(self, submission: Submission, entered: _Entered) -> None:
        if tracing.active is not None:
            entered.span = ExitStack()
            entered.span.enter_context(tracing.active.publishing(self._command.topic, submission.batches[0]))
        try:
            intake = self._parts.bridge.broker.intake(self._command.topic)
            self._parts.bridge.sink.submit(intake, submission, lambda outcome: self._tell(entered, outcome))
        except Exception as error:
            self._tell(entered, error)

    def _tell(self, entered: _Entered, outcome: Outcome) -> None:
        """The outcome of one is known: answer all that are due."""
        entered.outcome = outcome
        if isinstance(outcome, Exception) and not isinstance(outcome, InvalidInput):
            self._is_refused = True
        answers: list[bytes] = []
        while self._entered and (decided := self._entered[0].outcome) is not None:
            done = self._entered.popleft()
            self._bytes -= done.size
            self._rows -= done.rows
            self._let_go(done.size, done.held)
            if done.span is not None:
                failure = decided if isinstance(decided, Exception) else None
                done.span.__exit__(None if failure is None else type(failure), failure, None)
            answers.append(_answer(decided))
        if answers:
            data = b"".join(answers)
            self._traffic.bytes_out += len(data)
            self._frames.write_soon(data)
            self._shrink_room()
            self._changed.set()

    def _shrink_room(self) -> None:
        """Hold no room for answers that the client has received."""
        if self._frames.is_received:
            self._room.shrink(self._rows * _RECEIPT_BYTES)

    def _let_go(self, size: int, held: HeldBytes | None) -> None:
        """A frame takes no memory any more."""
        if size:
            self._frames.release(size)
        if held is not None:
            held.shrink()


def _answer(outcome: Outcome) -> bytes:
    if isinstance(outcome, Exception):
        return refusal(outcome)
    if _is_one_written(outcome):
        return native.frame(native.RECEIPT, native.WRITTEN.pack(int(outcome.partition[0]), int(outcome.offset[0])))
    return native.frame(native.RECEIPTS, encode_receipts(outcome).to_pybytes())


def _is_one_written(receipts: Receipts) -> bool:
    return len(receipts) == 1 and bool(receipts.outcome[0] == WRITTEN)

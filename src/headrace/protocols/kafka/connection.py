"""One connection: requests in, answers out, in order.

Before a caller is known only requests are served that say who it is.

Consecutive Produce requests that have arrived together are decoded and put in line together, and answered as they are
written: one commit carries many of them. Any other request waits for the answers before it, and is served without a
task of its own. What cannot be read as a request ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker.access import ProvenToken
from headrace.core.errors import AccessDenied, HeadraceError
from headrace.core.reports.clients import ClientIdentity
from headrace.edge.access import Principal
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frame_connection import EndConnection, FrameConnection
from headrace.edge.event_loop.frames import SIZE, Frame, Frames
from headrace.protocols.kafka.apis import sasl
from headrace.protocols.kafka.apis.call import (
    ANSWER_ELEMENT_BYTES,
    LOOP_ELEMENTS_MAX,
    LOOP_REQUEST_BYTES_MAX,
    Call,
    Parts,
    Waited,
)
from headrace.protocols.kafka.apis.records.produce import begin_produce
from headrace.protocols.kafka.apis.table import API_VERSIONS, APIS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from headrace.protocols.kafka.apis.versions import api_versions
from headrace.protocols.kafka.errors import outcome_of
from headrace.protocols.kafka.messages.envelope import (
    HEAD,
    PARSED_ELEMENT_BYTES,
    KafkaRequest,
    encode_answer,
    read_request,
)
from headrace.protocols.kafka.messages.reader import BadRequest, TooManyElements
from headrace.protocols.kafka.repeated_fetch import EncodedAnswer, RepeatedFetch

# Produce requests that are decoded, written and answered together: at most how many, and from which size on no more are
# added; and how many such groups are under way. A group costs more than a small request in it: requests of 50 messages
# cost half as much again with 64 KB in a group as with 256.
PIPELINED_MAX: Final = 64
PIPELINED_BYTES: Final = 256 << 10
GROUPS_MAX: Final = 16
# Those that say who a caller is.
_LOGIN: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)

logger = logging.getLogger(__name__)

Answer = dict[str, Any] | None


@dataclass(slots=True)
class _Produced:
    """A Produce request that is being written, and its answer. Nobody changes it."""

    request: KafkaRequest
    answer: Awaitable[Answer]
    parsed: HeldBytes


class KafkaConnection(FrameConnection[Parts]):
    """One connection of a client. Belongs to the event loop."""

    protocol = "kafka"
    # As much as is served together.
    ahead_bytes = PIPELINED_BYTES
    frame_bytes_min = HEAD.size

    def __init__(self, parts: Parts, frames: Frames, place: ConnectionPlace) -> None:
        super().__init__(parts, frames, place)
        self._login = sasl.Login(parts.gate.scram)
        self._advertised = parts.settings.place(frames.extra("sockname"))
        self._repeated = RepeatedFetch(parts, frames)
        # What the client says that it is.
        self._library = ("", "")
        # Produce requests that are not answered yet, oldest first, how many there are, and the task that answers them.
        self._produced: asyncio.Queue[list[_Produced] | None] = asyncio.Queue(GROUPS_MAX)
        self._unanswered = 0
        self._all_answered = asyncio.Event()
        self._answering: asyncio.Task[None] | None = None

    @property
    def _token(self) -> str | ProvenToken | None:
        return self._login.token

    async def _serve(self) -> None:
        await self._welcome()
        while not self._parts.bridge.draining.has_begun and (self._answering is None or not self._answering.done()):
            frame = await self._next()
            if frame is None:
                break
            try:
                await self._take(frame)
            except BadRequest as error:
                raise EndConnection(str(error)) from None
        if self._answering is not None:
            await self._produced.put(None)
            await self._answering

    async def _finish(self) -> None:
        self._repeated.close()
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        await self._abandon_answers()

    async def _take(self, frame: Frame) -> None:
        # Before anything else is answered: a fetch that does not reach this task would not wait for that.
        self._repeated.end_idle()
        api_key, version, _ = HEAD.unpack_from(frame)
        api = APIS.get(api_key)
        room, parsed = AnswerRoom(self._parts.envelope.answers), HeldBytes(self._parts.envelope.parsed)
        try:
            if api is None:
                raise EndConnection(f"it sent API key {api_key}, which is not served (version {version})")
            if version not in api.versions and api_key != API_VERSIONS:
                served = f"{api.versions[0]} to {api.versions[-1]} are served"
                raise EndConnection(f"it sent version {version} of {api.name}: {served}")
            if api_key != PRODUCE:
                if self._unanswered:
                    await self._all_answered.wait()
                await self._frames.write(await self._answered(frame, api, room, parsed))
                return
        finally:
            room.shrink()
            parsed.shrink()
            if api_key != PRODUCE:
                self._frames.release(len(frame))
        await self._produce(api, [frame, *self._following(api_key, version)])

    # Requests that are answered in their turn

    async def _answered(self, frame: Frame, api: Api, room: AnswerRoom, parsed: HeldBytes) -> bytes:
        """The bytes of the answer to a request."""
        api_key, version, correlation_id = HEAD.unpack_from(frame)
        if version not in api.versions:
            # Answered in the oldest version, so that every client understands it.
            refused = api_versions(ErrorCode.unsupported_version)
            return self._encoded(API_VERSIONS, 0, correlation_id, refused, len(frame))
        if api_key in _LOGIN:
            request = await self._request(frame, api, parsed)
            answer = await self._log_in(api_key, version, request.fields)
            return self._encoded(api_key, version, correlation_id, answer or {}, len(frame))
        # Nothing is read for those who have not signed in.
        principal = await self._principal(api.name)
        request = self._repeated.known(frame) or await self._request(frame, api, parsed)
        is_repeatable = self._repeated.keep(frame, request, principal.name)
        room.owner, room.is_large = principal.name, len(frame) > LOOP_REQUEST_BYTES_MAX
        waited, self._frames.waited_seconds = Waited(self._frames.waited_seconds), 0.0
        answer = await api.handler(self._call(request, principal, room, waited), request.fields)
        if room.is_large:
            large = await self._parts.bridge.call(_encoded, api_key, version, correlation_id, answer or {})
            return self._counted(api_key, large, len(frame))
        if not is_repeatable:
            return self._encoded(api_key, version, correlation_id, answer or {}, len(frame))
        return self._counted(
            api_key, self._repeated.answer(request, frame, answer or {}, principal, waited.nothing), len(frame)
        )

    async def _request(self, frame: Frame, api: Api, parsed: HeldBytes) -> KafkaRequest:
        """A request, read here if it has few elements and bytes, and in a thread if it has many.

        What many elements take is held before they are read: at first as much as so many bytes could be, as far as a
        caller may hold that.
        """
        few_max = min(LOOP_ELEMENTS_MAX, api.elements_max)
        try:
            if len(frame) <= LOOP_REQUEST_BYTES_MAX:
                return read_request(frame, few_max)
            return await self._parts.bridge.call(read_request, frame, few_max)
        except TooManyElements:
            if api.elements_max <= few_max:
                raise
        parsed.owner = self._place.caller or ""
        await parsed.take(min(min(api.elements_max, len(frame)) * PARSED_ELEMENT_BYTES, parsed.budget.share_max))
        request = await self._parts.bridge.call(read_request, frame, api.elements_max)
        parsed.shrink(request.elements * PARSED_ELEMENT_BYTES)
        return request

    def _encoded(self, api_key: int, version: int, correlation_id: int, answer: dict[str, Any], asked: int) -> bytes:
        """The bytes of an answer, which is counted, to a request of `asked` bytes."""
        return self._counted(api_key, _encoded(api_key, version, correlation_id, answer), asked)

    def _counted(self, api_key: int, answer: EncodedAnswer, asked: int) -> bytes:
        self._traffic.count(APIS[api_key].name, answer.outcome, SIZE.size + asked, len(answer.data))
        return answer.data

    def _call(self, request: KafkaRequest, principal: Principal, room: AnswerRoom, waited: Waited) -> Call:
        self._note_client(principal, ClientIdentity(request.client_id, "", 0, *self._library))
        return Call(
            self._parts,
            principal,
            request.api_key,
            request.version,
            request.client_id,
            self._frames.host,
            self._advertised,
            request.size,
            self._frames.gone,
            room,
            waited,
        )

    # Produce requests, which share commits

    def _following(self, api_key: int, version: int) -> list[Frame]:
        """More Produce requests that have arrived already."""
        frames: list[Frame] = []
        size = 0
        while self._place.caller is not None and len(frames) < PIPELINED_MAX - 1 and size < PIPELINED_BYTES:
            head = self._frames.peek(HEAD.size)
            if head is None or HEAD.unpack(head)[:2] != (api_key, version):
                break
            frame = self._frames.ready()
            frames.append(frame)
            size += len(frame)
        return frames

    async def _produce(self, api: Api, frames: list[Frame]) -> None:
        """Put the records of requests in line; if one of them cannot be read, those before it, and the end."""
        requests: list[KafkaRequest] = []
        parsed: list[HeldBytes] = []
        answers: list[Awaitable[Answer]] = []
        bad: BadRequest | None = None
        try:
            for frame in frames:
                principal = await self._principal(api.name)
                parsed.append(HeldBytes(self._parts.envelope.parsed))
                try:
                    requests.append(await self._request(frame, api, parsed[-1]))
                except BadRequest as error:
                    bad = error.with_traceback(None)
                    break
                await self._hold_back(principal, len(frame))
            if requests:
                call = self._call(
                    requests[0], principal, AnswerRoom(self._parts.envelope.answers, principal.name), Waited()
                )
                answers = await begin_produce(call, [request.fields for request in requests])
        finally:
            dropped = frames[len(answers) :]
            self._frames.release(sum(map(len, dropped)), len(dropped))
            for held in parsed[len(answers) :]:
                held.shrink()
        if requests:
            # Of one that could not be read nothing is held.
            produced = zip(requests, answers, parsed[: len(answers)], strict=True)
            await self._answer_later([_Produced(*each) for each in produced])
        if bad is not None:
            raise bad

    async def _answer_later(self, produced: list[_Produced]) -> None:
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer_produced())
        self._unanswered += len(produced)
        self._all_answered.clear()
        try:
            await self._produced.put(produced)
        except BaseException:
            await self._abandon(produced)
            raise

    async def _answer_produced(self) -> None:
        """Answer Produce requests in their order; those that arrived together are answered together."""
        try:
            while (produced := await self._produced.get()) is not None:
                await self._answer_together(deque(produced))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except HeadraceError as error:
            self._warn(error)
        except Exception:
            logger.exception("a Kafka request of %s failed", self._frames.host)
        finally:
            self._frames.gone.begin()
            # Nobody may wait for answers that will not be written.
            self._all_answered.set()
            self._frames.stop()

    async def _answer_together(self, produced: deque[_Produced]) -> None:
        answers: list[bytes] = []
        answered: list[_Produced] = []
        room = AnswerRoom(self._parts.envelope.answers, self._place.caller or "")
        try:
            while produced:
                each = produced.popleft()
                answered.append(each)
                answer = await each.answer
                if answer is not None:
                    answers.append(await self._encoded_produced(each.request, answer, room))
            if answers:
                await self._frames.write(b"".join(answers))
        finally:
            room.shrink()
            for each in answered:
                self._done_with(each)
            await self._abandon(produced)

    async def _encoded_produced(self, request: KafkaRequest, answer: dict[str, Any], room: AnswerRoom) -> bytes:
        key, version, number = request.api_key, request.version, request.correlation_id
        if request.elements <= LOOP_ELEMENTS_MAX:
            return self._encoded(key, version, number, answer, request.size)
        await room.take(request.elements * ANSWER_ELEMENT_BYTES)
        large = await self._parts.bridge.call(_encoded, key, version, number, answer)
        return self._counted(key, large, request.size)

    async def _abandon_answers(self) -> None:
        """Wait for what nobody will be answered: what is being written is written."""
        while not self._produced.empty():
            await self._abandon(self._produced.get_nowait() or ())

    async def _abandon(self, produced: Iterable[_Produced]) -> None:
        for each in produced:
            await asyncio.gather(each.answer, return_exceptions=True)
            self._done_with(each)

    def _done_with(self, produced: _Produced) -> None:
        """A request takes no memory any more."""
        produced.parsed.shrink()
        self._frames.release(produced.request.size)
        self._unanswered -= 1
        if not self._unanswered:
            self._all_answered.set()

    # Access

    async def _log_in(self, api_key: int, version: int, request: Any) -> Answer:
        if api_key == API_VERSIONS:
            name, version_of_it = (getattr(request, f"client_software_{each}", "") for each in ("name", "version"))
            self._library = name[:100], version_of_it[:100]
            return api_versions()
        if api_key == SASL_HANDSHAKE:
            if version == 0:
                raise EndConnection("it wants SASL without a header around it, which no client of the last years needs")
            return self._login.shake_hands(request.mechanism)
        if self._parts.gate.is_stale:
            await self._parts.leases.refresh()
        answer = self._login.authenticate(request.auth_bytes)
        if self._login.token is not None:
            try:
                await self._principal("sasl_authenticate")
            except AccessDenied as error:
                self._login.token = None
                return sasl.refused(str(error))
        return answer

    async def _hold_back(self, principal: Principal, size: int) -> None:
        """Wait until the caller may publish more: Kafka's clients take that as a slow server."""
        rate = principal.limits.publish_bytes
        while (seconds := rate.seconds_until_free(principal.name)) > 0:
            principal.count_refusal("limits.publish_bytes_per_second")
            await asyncio.sleep(min(seconds, 1.0))
        rate.spend(principal.name, size)


def _encoded(api_key: int, version: int, correlation_id: int, answer: dict[str, Any]) -> EncodedAnswer:
    return EncodedAnswer(encode_answer(api_key, version, correlation_id, answer), outcome_of(answer))

"""The last Fetch request of a connection: consumers repeat theirs for as long as they find nothing.

Such a request differs from the last one only by its correlation id, and its answer usually does too. So the request is
kept as it arrived and as it was read, and its answer as it was encoded: neither is done again. A fetch that found
nothing is then repeated by `IdleFetch`, without the task of the connection, until any other request arrives.

Large requests and answers are not kept: a connection holds at most `REQUEST_BYTES_MAX` and `ANSWER_BYTES_MAX` here.
What more than a few elements take once they are read counts against the caller's share of `Envelope.parsed`; without
room for it nothing is kept.
Belongs to the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.edge.access import Principal
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.edge.event_loop.frames import Frame, Frames
from headrace.protocols.kafka.apis.call import Parts
from headrace.protocols.kafka.apis.records.idle_fetch import IdleFetch, Nothing
from headrace.protocols.kafka.apis.table import FETCH
from headrace.protocols.kafka.errors import outcome_of
from headrace.protocols.kafka.messages.envelope import (
    HEAD,
    PARSED_ELEMENT_BYTES,
    KafkaRequest,
    encode_answer,
    with_correlation_id,
)

REQUEST_BYTES_MAX: Final = 64 << 10
ANSWER_BYTES_MAX: Final = 4 << 10
# The head of a request ends with its correlation id.
_CORRELATION_ID_BYTES: Final = 4
# As many are kept for every connection.
_FREE_ELEMENTS: Final = 100


@dataclass(slots=True)
class EncodedAnswer:
    """The bytes of an answer, and its outcome for the metrics. Nobody changes it."""

    data: bytes
    outcome: str


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer before and after it was encoded."""

    fields: dict[str, Any]
    encoded: EncodedAnswer


class RepeatedFetch:
    """The last Fetch request of one connection, with its answer."""

    def __init__(self, parts: Parts, frames: Frames) -> None:
        self._parts = parts
        self._frames = frames
        self._frame = b""
        self._request: KafkaRequest | None = None
        self._held = HeldBytes(parts.envelope.parsed)
        self._answered: _Answered | None = None
        self._idle: IdleFetch | None = None

    def known(self, frame: Frame) -> KafkaRequest | None:
        """The request that this frame is, if it was kept."""
        return self._request if _is_same(frame, self._frame) else None

    def keep(self, frame: Frame, request: KafkaRequest, caller: str) -> bool:
        """Keep the request that a frame is, for `answer`; whether it is a Fetch request and there is room for it."""
        if request.api_key != FETCH:
            return False
        if request is not self._request:
            self._forget()
            size = request.elements * PARSED_ELEMENT_BYTES if request.elements > _FREE_ELEMENTS else 0
            if len(frame) > REQUEST_BYTES_MAX or not self._held.try_take(size, caller):
                return False
            self._request, self._frame = request, bytes(frame)
        return True

    def _forget(self) -> None:
        self._request = self._answered = None
        self._frame = b""
        self._held.shrink()

    def close(self) -> None:
        """Keep nothing any more."""
        self.end_idle()
        self._forget()

    def answer(
        self, request: KafkaRequest, frame: Frame, answer: dict[str, Any], principal: Principal, nothing: Nothing | None
    ) -> EncodedAnswer:
        """Encode the answer to what was kept; if it found nothing, be ready for the same request again."""
        _, _, correlation_id = HEAD.unpack_from(frame)
        encoded = self._encoded(request, correlation_id, answer)
        if self._answered is not None and nothing is not None and not self._frames.gone.has_begun:
            told = encoded.data, encoded.outcome
            self._idle = IdleFetch(self._parts, self._frames, principal, nothing, bytes(frame), *told)
        return encoded

    def _encoded(self, request: KafkaRequest, correlation_id: int, answer: dict[str, Any]) -> EncodedAnswer:
        last = self._answered
        if last is not None and last.fields == answer:
            return EncodedAnswer(with_correlation_id(last.encoded.data, correlation_id), last.encoded.outcome)
        data = encode_answer(request.api_key, request.version, correlation_id, answer)
        encoded = EncodedAnswer(data, outcome_of(answer))
        self._answered = _Answered(answer, encoded) if len(data) <= ANSWER_BYTES_MAX else None
        return encoded

    def end_idle(self) -> None:
        """Have the next request, whatever it is, served by the connection; idempotent."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None


def _is_same(frame: Frame, last: bytes) -> bool:
    """Whether two requests differ at most in their correlation ids."""
    number = HEAD.size - _CORRELATION_ID_BYTES
    return len(frame) == len(last) and frame[HEAD.size :] == last[HEAD.size :] and frame[:number] == last[:number]

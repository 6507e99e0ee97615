"""A fetch that found nothing and is asked again: what it needs to wait is kept, and so is its answer.

Most requests of idle consumers are the same bytes as before but for their number. Such a request does not reach the
task of its connection: when its bytes arrive, `begin` looks whether anything has changed, and starts a wait; when the
time is over, the answer that is kept is written. That is a few function calls instead of a coroutine, its events and
its locks.

It decides nothing new. Whatever is not as it was (messages, offsets, tokens, limits, a server that stops before the
wait) leaves the request to the connection, which serves it as any other; a wait that has begun gives its request back
with the time that it has waited. Every request counts against the caller's rate once, and every wait as one of its
long polls. A client that has stopped asking costs nothing: its watches, for which a shared store is polled and tokens
are read again, end a few seconds later, and its next fetch is served as any other. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.hashes.columns import Int64s
from headrace.edge.access import Lease, Principal
from headrace.edge.event_loop.frames import SIZE, Frames
from headrace.protocols.kafka.apis.call import Parts
from headrace.protocols.kafka.ticks import Wait
from headrace.storage.interface import OffsetRange

# Where the number of a request is in it, and that of an answer, each behind the length.
_ASKED_NUMBER: Final = slice(8, 12)
_ANSWER_NUMBER: Final = slice(4, 8)
# How often is looked whether a fetch is still repeated; if not, it is no longer watched for.
KEPT_SECONDS: Final = 5.0


class Unchanged:
    """Partitions of a topic, as they were when nothing was found in them."""

    def __init__(self, reader: TopicReader, partitions: Int64s, seen: OffsetRange) -> None:
        self.reader = reader
        self._partitions = partitions
        self._seen_end, self._seen_start = seen.end, seen.start
        self._start, self._end = seen.start[self._partitions], seen.end[self._partitions]

    def __bool__(self) -> bool:
        """Whether they are the same now; neither locks nor disk are used."""
        try:
            seen = self.reader.seen_offsets()
        except HeadraceError:
            return False
        if seen is None or len(seen.end) < len(self._seen_end):
            return False
        if seen.end is not self._seen_end:
            if (seen.end[self._partitions] != self._end).any():
                return False
            self._seen_end = seen.end
        if seen.start is not self._seen_start:
            if (seen.start[self._partitions] != self._start).any():
                return False
            self._seen_start = seen.start
        return True


@dataclass(frozen=True, slots=True)
class Nothing:
    """What a fetch waited for, how long, and by which permission; it found nothing."""

    topics: list[Unchanged]
    wait_seconds: float
    lease: Lease


class IdleFetch(asyncio.Event):
    """One fetch of a connection, between its repetitions and during them. Setting it has an effect at once."""

    def __init__(
        self,
        parts: Parts,
        frames: Frames,
        principal: Principal,
        nothing: Nothing,
        asked: bytes,
        answer: bytes,
        outcome: str,
    ) -> None:
        super().__init__()
        self._parts = parts
        self._frames = frames
        self._principal = principal
        self._nothing = nothing
        self._version = parts.gate.version
        # The request before and behind its number, and the answer.
        whole = SIZE.pack(len(asked)) + asked
        self._size = len(whole)
        self._head, self._rest = whole[: _ASKED_NUMBER.start], whole[_ASKED_NUMBER.stop :]
        self._answer_head, self._answer_rest = answer[: _ANSWER_NUMBER.start], answer[_ANSWER_NUMBER.stop :]
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        # The wait that is under way, the number of its request, and since when.
        self._wait: Wait | None = None
        self._number = b""
        self._since = 0.0
        # Set by whatever ends a wait early, also between waits: who joins once need not join for each.
        self._watches = ExitStack()
        self._watches.enter_context(frames.gone.waking(self))
        self._watches.enter_context(parts.leases.waking(nothing.lease, self))
        for key in {parts.wakeups.watch(self, topic.reader) for topic in nothing.topics}:
            self._watches.callback(parts.wakeups.unwatch, self, key)
        self._is_used = True
        self._look()
        frames.shortcut = self.begin

    def close(self) -> None:
        """Take no more requests; none may be waiting."""
        self._looking.cancel()
        self._frames.shortcut = None
        self._watches.close()

    def _look(self) -> None:
        """End unless a request was answered since the last look, or is waiting."""
        if self._wait is None and not self._is_used:
            self.close()
            return
        self._is_used = False
        # All look at the same times, so that the loop wakes up once for all.
        looks = round(self._loop.time() / KEPT_SECONDS)
        self._looking = self._loop.call_at((looks + 1) * KEPT_SECONDS, self._look)

    def begin(self, data: bytes) -> bool:
        """Wait for an answer to the request that these bytes are, if that is the same again; whether it is."""
        if len(data) != self._size or not (data.startswith(self._head) and data.endswith(self._rest)):
            return False
        parts, principal = self._parts, self._principal
        if self._must_end() or parts.gate.is_stale or not self._is_unchanged():
            return False
        if not principal.limits.streams.try_take(principal.name):
            return False
        if not parts.gate.admit_again(principal):
            principal.limits.streams.give_back(principal.name)
            return False
        self._number = data[_ASKED_NUMBER]
        self._since = self._loop.time()
        self._wait = parts.ticks.begin(self, self._nothing.wait_seconds)
        return True

    def set(self) -> None:
        """Look whether the wait is over: its time is, or something has changed."""
        if self._wait is None:
            return
        if not self._is_unchanged():
            self._give_back()
        elif self._wait.is_over or self._must_end():
            self._answer()

    def _is_unchanged(self) -> bool:
        return self._parts.gate.version == self._version and all(self._nothing.topics)

    def _must_end(self) -> bool:
        return self._frames.gone.has_begun or self._parts.bridge.draining.has_begun

    def _answer(self) -> None:
        self._end()
        answer = b"".join([self._answer_head, self._number, self._answer_rest])
        self._parts.gate.limits.traffic["kafka"].count("Fetch", self._outcome, self._size, len(answer))
        self._frames.end_shortcut(answer)

    def _give_back(self) -> None:
        """Leave the request to the connection, by which it is admitted again."""
        self._end()
        self._principal.limits.requests.spend(self._principal.name, -1)
        request = b"".join([self._head, self._number, self._rest])
        self._frames.give_back(request, self._loop.time() - self._since)

    def _end(self) -> None:
        assert self._wait is not None
        self._parts.ticks.end(self._wait)
        self._wait = None
        self._is_used = True
        self._principal.limits.streams.give_back(self._principal.name)

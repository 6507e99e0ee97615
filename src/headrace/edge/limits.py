"""Limits of each caller: what one principal may have in progress, and its rates.

    limits = Limits(LimitSettings(streams_max=100))
    with limits.stream(name): ...              a stream or long poll; LimitExceeded beyond the limit
    with limits.flight_stream(name): ...       the same for what holds threads of the Flight server
    limits.requests.take(name)                 a request against its rate
    limits.bodies.take(name, size)             space for a body, until `give_back`

Callers are counted by the name of their token, over all protocols of a server together; all callers without a token
count as one. What holds threads is also bounded in total, in separate pools for readers, uploads and short calls, so
that many readers never stop publishing. A caller over its own limit gets `LimitExceeded`; if all callers together have
filled a pool, it is `Overloaded`. Nothing blocks here, except `Slots.wait`, which throttles upload streams.

How often each caller was refused or throttled is counted, in a bounded number of series. Thread-safe: locks are held
briefly, and nothing is called under them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from headrace.core.errors import LimitExceeded, Overloaded
from headrace.core.rights import ANYONE
from headrace.edge.monitoring.clients import Clients
from headrace.edge.settings import LimitSettings

# Callers beyond this number of series are counted together.
SERIES_MAX: Final = 1_000
OTHERS: Final = "(others)"
# How many callers' rates are kept; beyond it, those without recent activity are removed.
CALLERS_MAX: Final = 10_000

# The parts of one caller.
_FLIGHT_PART: Final = 4
_UPLOADS_PART: Final = 16
_BODIES_PART: Final = 2
_PARTIAL: Final = 2
_RETRY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02

# Counts that a caller was refused or throttled: the caller, and the setting.
CountRefusal = Callable[[str, str], None]


class Traffic:
    """Connections, requests by what they were and how they ended, and bytes, of a protocol that counts its own.

    HTTP and Flight are watched from outside (proxies, `flight_calls`); the requests of the others carry their outcome
    inside. One thread writes, any may read: what is read may be a moment old.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._requests: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """One connection, as long as it is open."""
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    def count(self, request: str, outcome: str, bytes_in: int, bytes_out: int) -> None:
        """A request was answered."""
        self._requests[request, outcome] += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests there were, by what they were and how they ended."""
        return dict(self._requests)


class Limits:
    """All limits of one server. Thread-safe."""

    def __init__(self, settings: LimitSettings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        settings = settings or LimitSettings()
        self._counting = threading.Lock()
        self._limited: dict[tuple[str, str], int] = {}

        def flight_slots(what: str, part: int = _FLIGHT_PART) -> Slots:
            total = settings.flight_calls_max
            each, anyone = max(1, total // part), max(1, total // _FLIGHT_PART)
            return Slots(what, "limits.flight_calls_max", each, self.count_refusal, total, anyone)

        # Beside the limits, what all protocols share: by protocol the requests of those that count them, and who calls.
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)
        self.clients = Clients()
        self.streams = Slots("streams and long polls", "limits.streams_max", settings.streams_max, self.count_refusal)
        self.flight_streams = flight_slots("Flight streams")
        self.flight_uploads = flight_slots("Flight uploads", _UPLOADS_PART)
        self.flight_calls = flight_slots("Flight calls")
        bodies_max = settings.requests_bytes_max // _BODIES_PART
        self.bodies = Slots("bytes of bodies under way", "limits.requests_bytes_max", bodies_max, self.count_refusal)
        # What of messages of one caller may have arrived in part, where nobody can stop reading.
        self.partial_bytes_max = _PARTIAL * settings.requests_bytes_max
        self.publish_bytes = Rate(
            "bytes published per second",
            "limits.publish_bytes_per_second",
            settings.publish_bytes_per_second,
            self.count_refusal,
            clock,
        )
        self.requests = Rate(
            "requests per second", "limits.requests_per_second", settings.requests_per_second, self.count_refusal, clock
        )

    def stream(self, principal: str) -> AbstractContextManager[None]:
        """A stream or long poll that holds no thread."""
        return self.streams.taken(principal)

    @contextmanager
    def flight_stream(self, principal: str) -> Iterator[None]:
        """A read, a follow or a wait over Flight."""
        with ExitStack() as taken:
            taken.enter_context(self.streams.taken(principal))
            taken.enter_context(self.flight_streams.taken(principal))
            yield

    @contextmanager
    def flight_call(self, principal: str) -> Iterator[None]:
        """Any other Flight call."""
        with self.flight_calls.taken(principal):
            yield

    def count_refusal(self, principal: str, setting: str) -> None:
        """Count that a limit refused or throttled a caller."""
        with self._counting:
            key = (principal, setting)
            if key not in self._limited and len(self._limited) >= SERIES_MAX:
                key = (OTHERS, setting)
            self._limited[key] = self._limited.get(key, 0) + 1

    def limited(self) -> dict[tuple[str, str], int]:
        """How often each caller reached each limit."""
        with self._counting:
            return dict(sorted(self._limited.items()))


class Slots:
    """What callers may have in progress: a maximum for each, and one for all together if there is a total."""

    def __init__(
        self,
        what: str,
        setting: str,
        each_max: int,
        count_refusal: CountRefusal,
        total_max: int | None = None,
        anyone_max: int | None = None,
    ) -> None:
        self._what = what
        self._setting = setting
        self._each_max = each_max
        self._count_refusal = count_refusal
        self._total_max = total_max
        # Where there are no tokens, all callers are one.
        self._anyone_max = each_max if anyone_max is None else anyone_max
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self.total = 0

    @contextmanager
    def taken(self, principal: str, size: int = 1) -> Iterator[None]:
        """Hold an amount for a while."""
        self.take(principal, size)
        try:
            yield
        finally:
            self.give_back(principal, size)

    def take(self, principal: str, size: int = 1, own: int = 0) -> None:
        """Take an amount, or refuse at once; `own` is what the same request took before."""
        error = self._try(principal, size, own)
        if error is not None:
            self._count_refusal(principal, self._setting)
            raise error

    def add(self, principal: str, size: int) -> None:
        """Count an amount that is there already, whatever the limit; a negative one is given back."""
        with self._lock:
            self._hold(principal, size)

    def room(self, principal: str) -> int:
        """How far a caller is below its limit."""
        return self._each_max - self._held.get(principal, 0)

    def count_refusal(self, principal: str) -> None:
        """Count that a caller has to wait."""
        self._count_refusal(principal, self._setting)

    def try_take(self, principal: str, size: int = 1) -> bool:
        """Take an amount if there is space, without counting a refusal; whether it was taken."""
        return self._try(principal, size) is None

    def wait(self, principal: str, size: int, is_over: Callable[[], bool]) -> bool:
        """Take an amount once there is space; returns whether it was taken before the wait ended."""
        if self._try(principal, size) is None:
            return True
        self._count_refusal(principal, self._setting)
        while not is_over():
            time.sleep(_LOOK_SECONDS)
            if self._try(principal, size) is None:
                return True
        return False

    def give_back(self, principal: str, size: int = 1) -> None:
        """Give an amount back."""
        with self._lock:
            self._hold(principal, -size)

    def _hold(self, principal: str, size: int) -> None:
        self.total += size
        held = self._held.get(principal, 0) + size
        if held:
            self._held[principal] = held
        else:
            # A caller with nothing in progress takes no memory.
            self._held.pop(principal, None)

    def _try(self, principal: str, size: int, own: int = 0) -> LimitExceeded | Overloaded | None:
        with self._lock:
            held = self._held.get(principal, 0)
            # Something larger than the limit must be possible: alone.
            most = self._anyone_max if principal == ANYONE.name else self._each_max
            if held > own and held + size > most:
                return LimitExceeded(principal, self._what, self._part(most), most, _RETRY_SECONDS)
            if self._total_max is not None and self.total + size > self._total_max:
                return Overloaded(f"the number of {self._what} ({self._setting})", self._total_max, 0.0)
            self._hold(principal, size)
            return None

    def _part(self, most: int) -> str:
        """What a caller may have, as a part of the setting where that is the total: it raises the setting."""
        part = self._total_max // most if self._total_max is not None else 1
        return self._setting if part == 1 else f"1/{part} of {self._setting}"


class Rate:
    """An amount per second for each caller, accumulated for at most a second (a token bucket); 0 for no limit.

    A caller with anything left may spend more than that, and must wait until the debt is paid off: so requests larger
    than a second's worth are possible too, and the average holds.
    """

    def __init__(
        self,
        what: str,
        setting: str,
        per_second: int,
        count_refusal: CountRefusal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._setting = setting
        self._per_second = per_second
        self._count_refusal = count_refusal
        self._clock = clock
        self._lock = threading.Lock()
        # What each caller had left, and when.
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, principal: str, size: int = 1) -> None:
        """Spend, or refuse at once."""
        self.check(principal)
        self.spend(principal, size)

    def check(self, principal: str) -> None:
        """Refuse a caller that has nothing left."""
        seconds = self.seconds_until_free(principal)
        if seconds > 0:
            self._count_refusal(principal, self._setting)
            raise LimitExceeded(principal, self._what, self._setting, self._per_second, seconds)

    def seconds_until_free(self, principal: str) -> float:
        """How long until a caller may spend again; 0 if it may now."""
        if not self._per_second:
            return 0.0
        with self._lock:
            left = self._now(principal, self._clock())
        # A little longer, so that there is something after this wait.
        return 0.0 if left > 0 else (1e-3 * self._per_second - left) / self._per_second

    def spend(self, principal: str, size: int) -> None:
        """Spend, even more than is left."""
        if not self._per_second:
            return
        with self._lock:
            now = self._clock()
            if principal not in self._left and len(self._left) >= CALLERS_MAX:
                self._forget(now)
            self._left[principal] = (self._now(principal, now) - size, now)

    def wait(self, principal: str, is_over: Callable[[], bool]) -> None:
        """Throttle a stream until its caller may spend again, or the wait is over."""
        seconds = self.seconds_until_free(principal)
        if seconds > 0:
            self._count_refusal(principal, self._setting)
        while seconds > 0 and not is_over():
            time.sleep(min(seconds, _LOOK_SECONDS))
            seconds = self.seconds_until_free(principal)

    def _now(self, principal: str, now: float) -> float:
        left, at = self._left.get(principal, (math.inf, now))
        return min(float(self._per_second), left + (now - at) * self._per_second)

    def _forget(self, now: float) -> None:
        """Remove callers that have a full bucket again: nothing is lost."""
        self._left = {name: left for name, left in self._left.items() if self._now(name, now) < self._per_second}

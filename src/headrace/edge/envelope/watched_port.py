"""What connections of a port may bring that a library serves, before it is delivered as messages.

    watch = WatchedPort(port, "flight", share_bytes=1 << 30)
    watch.start()
    connection = watch.know("ipv4:127.0.0.1:50000", "till")     a call of this peer was admitted: it is this caller's
    connection.deliver(size)                                    a message of it was delivered, so long on the wire
    with connection.half_open(): ...                            a stream waits for its first message
    watch.stop()

gRPC keeps what has arrived of a message until all of it has, however long that takes, tells nobody of it, and takes any
number of connections. So a thread asks the kernel how many bytes arrived on each connection of the port. Ended are:

    strangers     connections over which nobody was admitted: that bring more than a first call may have; the largest,
                  while all of them bring too much; the oldest, while there are too many
    callers       those on which most has arrived that was not delivered, while a caller has more than its share of it,
                  or all callers together twice as much; the newest, while a caller has too many
    half-open     those on which a stream waits for its first message, and for a minute nearly nothing has arrived and
                  no call and no message was delivered: a caller's idle stream does not end the others beside it

What is told of messages is what they had on the wire at least. The rest of what arrives, such as frames and headers,
counts as undelivered until the process does not even hold as much. `know` may be called by any thread, and so may the
methods of a connection that are shown above; the rest belongs to the thread that looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.core.rights import ANYONE
from headrace.edge.envelope import allocator
from headrace.edge.envelope.port_sockets import Peer, PortSockets, memory_bytes, peer_of
from headrace.edge.envelope.repeated_warnings import RepeatedWarnings

# The largest operation is half of it.
STRANGER_BYTES_MAX: Final = 8 << 20
STRANGERS_BYTES_MAX: Final = 64 << 20
STRANGERS_MAX: Final = 1_000
CALLER_CONNECTIONS_MAX: Final = 1_000
HALF_OPEN_SECONDS: Final = 60.0
# Less than this in that time is no message that arrives slowly.
HALF_OPEN_BYTES: Final = 64 << 10
# What a call has on the wire at least: the frames of its headers and of its first message.
_CALL_BYTES: Final = 30
_MESSAGE_BYTES: Final = 14
_LOOK_SECONDS: Final = 0.1
# While more than this arrives between two looks, the next one is sooner.
_MUCH_BYTES: Final = 8 << 20
_SOON_SECONDS: Final = 0.02
# Looking at many files takes long: it takes at most this part of a processor, one in fifty.
_SHARE: Final = 50
# Who was admitted is forgotten once the connection was not found for this time: it may be found later than that.
_FORGET_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class KnownConnection:
    """A connection over which a caller was admitted."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.admitted_at = 0.0
        # What arrived by the last look, and how much of it was not delivered as messages.
        self.received = 0
        self.pending = 0.0
        self._lock = threading.Lock()
        self._delivered = 0
        # Since when streams wait for their first messages.
        self._half_open: dict[object, float] = {}
        # Since when nearly nothing arrived, and what had arrived then.
        self._quiet = 0.0, 0
        # Whether a call or a message was delivered before the last look.
        self._is_used = False

    def deliver(self, size: int) -> None:
        """A message of this size is no longer gRPC's."""
        with self._lock:
            self._delivered += size + _MESSAGE_BYTES

    @contextmanager
    def half_open(self) -> Iterator[None]:
        """While a stream waits for its first message."""
        stream = object()
        with self._lock:
            self._half_open[stream] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._half_open[stream]

    def admit(self, caller: str, now: float) -> None:
        """A call was admitted."""
        with self._lock:
            self.caller, self.admitted_at = caller, now
            self._delivered += _CALL_BYTES

    def take_delivered(self) -> int:
        """What was delivered since the last time."""
        with self._lock:
            delivered, self._delivered = self._delivered, 0
            return delivered

    def count(self, received: int, delivered: int) -> None:
        """So much has arrived by now; of it so much was delivered, as was asked before."""
        self.pending = max(0.0, self.pending + received - self.received - delivered)
        self.received = received
        self._is_used = delivered > 0

    def begin(self) -> None:
        """Another connection has this name now."""
        self.received, self.pending = 0, 0.0

    def is_stale(self, now: float) -> bool:
        """Whether a stream has waited for its first message too long."""
        with self._lock:
            oldest = min(self._half_open.values(), default=now)
        since, received = self._quiet
        if self._is_used or not received <= self.received < received + HALF_OPEN_BYTES:
            self._quiet = since, _ = now, self.received
        return now - max(oldest, since) >= HALF_OPEN_SECONDS


class WatchedPort:
    """Ends what brings too much on one port. A caller may have `share_bytes` of messages that arrived in part."""

    def __init__(self, port: int, protocol: str, share_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._share_bytes = share_bytes
        self._clock = clock
        self._sockets = PortSockets(port)
        self._warnings = RepeatedWarnings(logger, f"connections of {protocol} clients were closed")
        self._protocol = protocol.capitalize()
        self._lock = threading.Lock()
        self._known: dict[Peer, KnownConnection] = {}
        self._peak = allocator.Peak()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{protocol}-connections", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()
        self._warnings.summarise(is_over=True)

    def know(self, peer: str, caller: str) -> KnownConnection:
        """A call of this peer, as gRPC names it, was admitted for this caller."""
        named = peer_of(peer)
        with self._lock:
            connection = self._known.get(named) if named is not None else None
            if connection is None:
                connection = KnownConnection(caller)
                if named is not None:
                    self._known[named] = connection
        connection.admit(caller, self._clock())
        return connection

    def _run(self) -> None:
        pause, arrived = _LOOK_SECONDS, 0
        while not self._over.wait(pause):
            began, before = time.thread_time(), arrived
            try:
                arrived = self.look()
            except OSError as error:
                self._warnings.warn(f"connections of the {self._protocol} port cannot be looked at: {error}")
            least = _SOON_SECONDS if arrived - before > _MUCH_BYTES else _LOOK_SECONDS
            pause = max(least, _SHARE * (time.thread_time() - began))

    def look(self) -> int:
        """End what is too large, too many or too old; returns how much has arrived on all connections there are."""
        self._warnings.summarise()
        new = self._sockets.find()
        self._end_namesakes()
        peers = self._sockets.peers
        present, now = set(peers.values()), self._clock()
        with self._lock:
            for peer in [each for each, known in self._known.items() if each not in present]:
                if self._known[peer].admitted_at < now - _FORGET_SECONDS:
                    del self._known[peer]
            known = {number: self._known[peer] for number, peer in peers.items() if peer in self._known}
        for number in new & known.keys():
            known[number].begin()
        arrived = self._look_at_strangers([number for number in peers if number not in known])
        self._look_at_callers(known, now)
        return arrived + sum(each.received for each in known.values())

    def _end_namesakes(self) -> None:
        """End all but one connection from one port to several addresses of this machine: gRPC names them alike."""
        peers = self._sockets.peers
        if len(set(peers.values())) == len(peers):
            return
        seen = set[Peer]()
        for number, peer in [*peers.items()]:
            if self._sockets.received(number) is None:
                continue
            if peer in seen:
                self._end(number, "another connection came from the same port, to another address")
            seen.add(peer)

    def _look_at_strangers(self, numbers: Iterable[int]) -> int:
        sizes = {number: size for number in numbers if (size := self._sockets.received(number)) is not None}
        arrived = total = sum(sizes.values())
        # Stable: of equal ones the oldest first.
        for number in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if sizes[number] <= STRANGER_BYTES_MAX and total <= STRANGERS_BYTES_MAX:
                break
            total -= sizes.pop(number)
            self._end(number, "too many bytes arrived of a caller who has not signed in")
        for number in list(sizes)[: max(0, len(sizes) - STRANGERS_MAX)]:
            self._end(number, "it had not signed in, and there are newer ones")
        return arrived

    def _look_at_callers(self, known: dict[int, KnownConnection], now: float) -> None:
        by_caller: dict[str, dict[int, KnownConnection]] = {}
        for number, connection in known.items():
            # In this order: what is delivered meanwhile counts the next time.
            delivered, received = connection.take_delivered(), self._sockets.received(number)
            if received is None:
                continue
            connection.count(received, delivered)
            if connection.is_stale(now):
                self._end(number, f"a stream was opened, and nothing sent for {HALF_OPEN_SECONDS:g} s")
            else:
                by_caller.setdefault(connection.caller, {})[number] = connection
        for caller, own in by_caller.items():
            if caller == ANYONE.name:
                # Without tokens all callers are one, and have everything.
                continue
            for number in list(own)[CALLER_CONNECTIONS_MAX:]:
                del own[number]
                self._end(number, f"{caller!r} has {CALLER_CONNECTIONS_MAX} connections that are older")
            self._bound(own, self._share_bytes, f"messages of {caller!r} that arrived in part")
        every = {number: connection for own in by_caller.values() for number, connection in own.items()}
        self._bound(every, 2 * self._share_bytes, "messages that arrived in part")
        pending = int(sum(each.pending for each in every.values()))
        self._peak.see(pending)
        if self._peak.is_over(pending):
            allocator.trim()

    def _bound(self, connections: dict[int, KnownConnection], most: int, what: str) -> None:
        """End the largest ones while all together have more than this, if the process holds as much at all."""
        total = sum(each.pending for each in connections.values())
        if total <= most:
            return
        held = memory_bytes()
        if held <= most:
            for each in connections.values():
                each.pending *= held / total
            return
        for number in sorted(connections, key=lambda number: connections[number].pending, reverse=True):
            if total <= most:
                break
            total -= connections.pop(number).pending
            self._end(number, f"{what} take more than {most} bytes, and most of them are its")

    def _end(self, number: int, reason: str) -> None:
        host = self._sockets.peers[number][0]
        if self._sockets.end(number):
            self._warnings.warn(f"the {self._protocol} connection of {host} was closed: {reason}")

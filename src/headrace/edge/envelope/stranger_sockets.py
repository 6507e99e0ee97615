"""Connections of a port that a library serves, over which nobody has said who it is.

    strangers = StrangerSockets(port, "flight")
    strangers.start()
    strangers.know("ipv4:127.0.0.1:50000")     a call of this peer was admitted: its connection is no stranger's
    strangers.stop()

gRPC reads the first message of a call, however long it is, before anybody is asked who calls, and takes any number of
connections. So a thread looks at the sockets of the port: what arrived on each is the kernel's word. A stranger's that
brings more than a first call may have is ended; so are the largest ones while all strangers' together bring too much,
and the oldest ones while there are too many. Works on Linux, where this process finds its sockets under /proc.

`know` may be called by any thread; the rest belongs to the thread that looks.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import unquote

from headrace.edge.envelope.repeated_warnings import RepeatedWarnings

# The largest operation is half of it.
STRANGER_BYTES_MAX: Final = 8 << 20
STRANGERS_BYTES_MAX: Final = 64 << 20
STRANGERS_MAX: Final = 1_000
_LOOK_SECONDS: Final = 0.25
# Looking at many files takes long: it takes at most this part of the time, one in fifty.
_SHARE: Final = 50
# Who was admitted is forgotten once the connection was not found for this time: it may be found later than that.
_FORGET_SECONDS: Final = 60.0
# Of the kernel's struct tcp_info, where it says how many bytes arrived.
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")
_FILES: Final = "/proc/self/fd"

Peer = tuple[str, int]

logger = logging.getLogger(__name__)


class StrangerSockets:
    """Ends what strangers hold on one port."""

    def __init__(self, port: int, protocol: str) -> None:
        self._port = port
        self._warnings = RepeatedWarnings(logger, f"connections of {protocol} clients were closed")
        self._protocol = protocol.capitalize()
        self._lock = threading.Lock()
        # Who was admitted, and when last.
        self._known: dict[Peer, float] = {}
        # The connections of the port, oldest first, by the number of their file; and which file has which number.
        self._peers: dict[int, Peer] = {}
        self._inodes: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{protocol}-strangers", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()
        self._warnings.summarise(is_over=True)

    def know(self, peer: str | bytes) -> None:
        """A call of this peer, as gRPC names it, was admitted."""
        named = _peer_of(peer.decode(errors="replace") if isinstance(peer, bytes) else peer)
        if named is not None:
            with self._lock:
                self._known[named] = time.monotonic()

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                self.look()
            except OSError as error:
                self._warnings.warn(f"connections of strangers cannot be looked at: {error}")
            pause = max(_LOOK_SECONDS, _SHARE * (time.monotonic() - began))

    def look(self) -> None:
        """Find the connections of strangers, and end those that are too large or too many."""
        self._warnings.summarise()
        self._find()
        present, until = set(self._peers.values()), time.monotonic() - _FORGET_SECONDS
        with self._lock:
            for peer in [each for each, at in self._known.items() if at < until and each not in present]:
                del self._known[peer]
            strangers = [each for each in self._peers.items() if each[1] not in self._known]
        sizes = {number: size for number, peer in strangers if (size := self._received(number, peer)) is not None}
        total = sum(sizes.values())
        # Stable: of equal ones the oldest first.
        for number in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if sizes[number] <= STRANGER_BYTES_MAX and total <= STRANGERS_BYTES_MAX:
                break
            total -= sizes.pop(number)
            self._end(number, "too many bytes arrived of a caller who has not signed in")
        for number in list(sizes)[: max(0, len(sizes) - STRANGERS_MAX)]:
            self._end(number, "it had not signed in, and there are newer ones")

    def _find(self) -> None:
        """Learn of new connections, and forget those that ended."""
        inodes: dict[int, int] = {}
        for number in map(int, os.listdir(_FILES)):
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISSOCK(status.st_mode):
                    inodes[number] = status.st_ino
        for number in [number for number in self._peers if self._inodes[number] != inodes.get(number)]:
            del self._peers[number]
        for number in [number for number, inode in inodes.items() if self._inodes.get(number) != inode]:
            peer = self._peer(number)
            if peer is not None:
                self._peers[number] = peer
        self._inodes = inodes

    def _peer(self, number: int) -> Peer | None:
        """The other end, if this file is a connection of the port."""
        with suppress(OSError), _opened(number) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == self._port:
                host, port = found.getpeername()[:2]
                return _plain(host), port
        return None

    def _received(self, number: int, peer: Peer) -> int | None:
        """How many bytes arrived; none if the connection has ended."""
        with suppress(OSError, struct.error), _opened(number) as found:
            host, port = found.getpeername()[:2]
            if (_plain(host), port) == peer:
                told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
                return int(_BYTES_RECEIVED.unpack(told)[0])
        return None

    def _end(self, number: int, reason: str) -> None:
        peer = self._peers.pop(number)
        with suppress(OSError), _opened(number) as found:
            host, port = found.getpeername()[:2]
            if (_plain(host), port) == peer:
                found.shutdown(socket.SHUT_RDWR)
                self._warnings.warn(f"the {self._protocol} connection of {peer[0]} was closed: {reason}")


@contextmanager
def _opened(number: int) -> Iterator[socket.socket]:
    """A socket under a number of its own, since it may end meanwhile. OSError if this is none.

    No other file is duplicated: closing any descriptor of a file releases all POSIX locks that the process has on it.
    SQLite locks the catalog that way; without those locks another process deletes its write-ahead log while it is used.
    """
    if not _is_socket(number):
        raise OSError(errno.ENOTSOCK, "it is no socket")
    duplicate = os.dup(number)
    if not _is_socket(duplicate):
        # The number became that of another file just now. It stays open, for the same reason.
        raise OSError(errno.ENOTSOCK, "it is no socket any more")
    with socket.socket(fileno=duplicate) as found:
        yield found


def _is_socket(number: int) -> bool:
    return stat.S_ISSOCK(os.fstat(number).st_mode)


def _peer_of(text: str) -> Peer | None:
    """The peer of `ipv4:127.0.0.1:50000` or `ipv6:%5B::1%5D:50000`."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None


def _plain(host: str) -> str:
    """An address; one of IPv4 that is written as one of IPv6 as it is."""
    return host.removeprefix("::ffff:").partition("%")[0]

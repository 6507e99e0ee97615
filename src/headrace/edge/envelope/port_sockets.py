"""The connections of a port that a library of this process serves, as the kernel knows them.

    sockets = PortSockets(port)
    sockets.find()                     the connections there are now, oldest first: `peers`, by the number of their file
    sockets.received(number)           how many bytes arrived; none if it has ended
    sockets.end(number)                shut it down: the library notices

Works on Linux, where a process finds its sockets under /proc. Belongs to one thread.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

# An address and a port.
Peer = tuple[str, int]

_FILES: Final = "/proc/self/fd"
_STATUS: Final = Path("/proc/self/status")
# Of the kernel's struct tcp_info, where it says how many bytes arrived.
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")
# A peer that vanished is asked for after a minute, and given up after two.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class PortSockets:
    """The connections of one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.peers: dict[int, Peer] = {}
        # Which file has which number: another one may get a number again.
        self._inodes: dict[int, int] = {}

    def find(self) -> set[int]:
        """Learn of new connections, and forget those that ended; returns the numbers of the new ones."""
        inodes: dict[int, int] = {}
        for number in map(int, os.listdir(_FILES)):
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISSOCK(status.st_mode):
                    inodes[number] = status.st_ino
        for number in [number for number in self.peers if self._inodes[number] != inodes.get(number)]:
            del self.peers[number]
        found = set()
        for number in [number for number, inode in inodes.items() if self._inodes.get(number) != inode]:
            peer = self._peer(number)
            if peer is not None:
                self.peers[number] = peer
                found.add(number)
        self._inodes = inodes
        return found

    def received(self, number: int) -> int | None:
        """How many bytes arrived; none if the connection has ended."""
        with suppress(OSError, struct.error), _opened(number) as found:
            if self._is_same(number, found):
                told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
                return int(_BYTES_RECEIVED.unpack(told)[0])
        return None

    def end(self, number: int) -> bool:
        """Shut a connection down; whether it was there."""
        with suppress(OSError), _opened(number) as found:
            if self._is_same(number, found):
                found.shutdown(socket.SHUT_RDWR)
                del self.peers[number]
                return True
        self.peers.pop(number, None)
        return False

    def _peer(self, number: int) -> Peer | None:
        """The other end, if this file is a connection of the port."""
        with suppress(OSError), _opened(number) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == self._port:
                host, port = found.getpeername()[:2]
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _KEEPALIVE:
                    found.setsockopt(socket.IPPROTO_TCP, option, value)
                return _plain(host), port
        return None

    def _is_same(self, number: int, found: socket.socket) -> bool:
        host, port = found.getpeername()[:2]
        return (_plain(host), port) == self.peers[number]


def peer_of(text: str) -> Peer | None:
    """The peer of `ipv4:127.0.0.1:50000` or `ipv6:%5B::1%5D:50000`, as gRPC names it."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None


def memory_bytes() -> int:
    """What this process holds that is in no file, in memory and swapped out."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    return sum(int(words[1]) << 10 for words in lines if words[0] in ("RssAnon:", "VmSwap:"))


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


def _plain(host: str) -> str:
    """An address; one of IPv4 that is written as one of IPv6 as it is."""
    return host.removeprefix("::ffff:").partition("%")[0]

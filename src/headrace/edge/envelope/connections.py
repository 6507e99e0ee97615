"""Who is connected: at most so many connections, and no caller or stranger takes the places of others.

    place = connections.arrive(address, close)      None: there are too many; `close` ends the connection later
    place.sign_in(caller)                           from now on it counts as the caller's
    place.leave()

Before a connection says whose it is, it is a stranger's. Strangers have a part of the places, and those of one address
a part of that; for one too many the oldest of them is closed, which has had the longest to sign in. A caller with a
token has a part of all places too; one connection more is refused. Runs on the event loop.

A client whose machine has gone silent is found by TCP (`end_if_silent`): for streams, which may have little to send.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.core.errors import LimitExceeded
from headrace.core.rights import ANYONE, Caller

# The parts of all places: one for each of so many.
_CALLER_PART: Final = 4
_STRANGERS_PART: Final = 4
_ADDRESS_PART: Final = 10
_RETRY_SECONDS: Final = 1.0
_SETTING: Final = "limits.connections_max"
# Linux only.
_TCP_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)


class ConnectionPlace:
    """One connection."""

    def __init__(self, connections: Connections, address: str, close: Callable[[str], None]) -> None:
        self.address = address
        self.close = close
        self.caller: str | None = None
        self._connections = connections

    def sign_in(self, caller: Caller) -> None:
        """Count as this caller's; LimitExceeded if it has too many."""
        if self.caller != caller.name:
            self._connections._sign_in(self, caller)

    def leave(self) -> None:
        """The connection has ended."""
        self._connections._leave(self)


class Connections:
    """The connections of one port."""

    def __init__(self, connections_max: int) -> None:
        self._max = connections_max
        self._caller_max = max(1, connections_max // _CALLER_PART)
        self._strangers_max = max(1, connections_max // _STRANGERS_PART)
        self._address_max = max(1, connections_max // _ADDRESS_PART)
        # Oldest first.
        self._strangers: dict[ConnectionPlace, None] = {}
        self._by_address: dict[str, dict[ConnectionPlace, None]] = {}
        self._by_caller: dict[str, int] = {}
        self._signed_in = 0

    def __len__(self) -> int:
        return self._signed_in + len(self._strangers)

    def arrive(self, address: str, close: Callable[[str], None]) -> ConnectionPlace | None:
        """A stranger has connected; None if there is no place for it. `close` is given the reason."""
        same = self._by_address.get(address, {})
        oldest = None
        if len(same) >= self._address_max:
            oldest = next(iter(same))
        elif len(self._strangers) >= self._strangers_max:
            oldest = next(iter(self._strangers))
        elif len(self) >= self._max:
            return None
        if oldest is not None:
            self._forget(oldest)
            oldest.close(f"it had not signed in, and newer connections wait for that ({_SETTING})")
        place = ConnectionPlace(self, address, close)
        self._strangers[place] = None
        self._by_address.setdefault(address, {})[place] = None
        return place

    def _sign_in(self, place: ConnectionPlace, caller: Caller) -> None:
        most = self._max if caller == ANYONE else self._caller_max
        if self._by_caller.get(caller.name, 0) >= most:
            raise LimitExceeded(caller.name, "connections", _SETTING, most, _RETRY_SECONDS)
        self._leave(place)
        place.caller = caller.name
        self._by_caller[caller.name] = self._by_caller.get(caller.name, 0) + 1
        self._signed_in += 1

    def _leave(self, place: ConnectionPlace) -> None:
        if place.caller is None:
            self._forget(place)
            return
        self._signed_in -= 1
        left = self._by_caller[place.caller] - 1
        if left:
            self._by_caller[place.caller] = left
        else:
            del self._by_caller[place.caller]
        place.caller = None

    def _forget(self, place: ConnectionPlace) -> None:
        if self._strangers.pop(place, self) is None:
            same = self._by_address[place.address]
            del same[place]
            if not same:
                del self._by_address[place.address]


def end_if_silent(sock: socket.socket | None, seconds: float) -> None:
    """Have TCP end the connection if what is sent is not taken in this time; 0: after the system's time.

    A client that lives and does not read for as long is ended too.
    """
    if sock is not None and _TCP_USER_TIMEOUT is not None:
        # It may have ended.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, int(seconds * 1000))

"""Clients, as a server knows them: what each says of itself, where it calls from, and what it reads and writes.

A client of this library sends its identity with every call, as the JSON of `ClientIdentity`; those of other protocols
say what their protocol has. All of it but address and principal is a client's own word, and is for people to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from headrace.core.rights import Caller, Right

IDENTITY_HEADER: Final = "headrace-client"
IDENTITY_CHARACTERS_MAX: Final = 2_000
_TEXT_CHARACTERS_MAX: Final = 100


class ClientIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client says of itself; empty, or 0, where it says nothing."""

    client_id: str = ""
    host: str = ""
    pid: int = 0
    library: str = ""
    version: str = ""

    @property
    def place(self) -> str:
        """The machine and process that it says it runs in."""
        return f"{self.host}:{self.pid}" if self.pid else self.host


_DECODER: Final = msgspec.json.Decoder(ClientIdentity)


def identity_of(text: str) -> ClientIdentity:
    """An identity as it was sent; what cannot be read says nothing.

    >>> identity_of('{"client_id":"billing","pid":7}')
    ClientIdentity(client_id='billing', host='', pid=7, library='', version='')
    """
    try:
        given = _DECODER.decode(text[:IDENTITY_CHARACTERS_MAX])
    except (msgspec.DecodeError, UnicodeError):
        return ClientIdentity()
    return shortened(given)


def shortened(identity: ClientIdentity) -> ClientIdentity:
    """The same with texts of a length that a table can show."""
    texts = (identity.client_id, identity.host, identity.library, identity.version)
    client_id, host, library, version = (text[:_TEXT_CHARACTERS_MAX] for text in texts)
    return ClientIdentity(client_id, host, identity.pid, library, version)


@dataclass(frozen=True, slots=True)
class ClientMembership:
    """A membership of a client in a group, and when it last asked for messages; None if it has not said."""

    topic: str
    group: str
    member: str
    polled_us: int | None


@dataclass(frozen=True, slots=True)
class ClientProducer:
    """A topic that a client writes to, and the source that it is; empty if it has none."""

    topic: str
    producer_id: str


# A client that is connected calls more often than this: a heartbeat of a member, a long poll, an idle connection.
RECENT_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """A client of one server: who it is, since when it calls and when it last did, and what it reads and writes."""

    server: str
    protocol: str
    principal: str
    address: str
    identity: ClientIdentity
    since_us: int
    seen_us: int
    members: list[ClientMembership]
    producers: list[ClientProducer]


def visible_clients(clients: Iterable[ClientDescription], caller: Caller) -> list[ClientDescription]:
    """What a caller may know: all with the right to read all topics; else its own, and those in topics it may read."""
    if caller.may(Right.READ, "*"):
        return list(clients)
    limited = (_limited(each, lambda topic: caller.may(Right.READ, topic)) for each in clients)
    return [each for each in limited if each.principal == caller.name or each.members or each.producers]


def _limited(client: ClientDescription, is_readable: Callable[[str], bool]) -> ClientDescription:
    """A client with what it does in readable topics."""
    members = [each for each in client.members if is_readable(each.topic)]
    return replace(client, members=members, producers=[each for each in client.producers if is_readable(each.topic)])

"""Who calls this server, over all protocols: identities, and what each client reads and writes.

    client = limits.clients.saw("flight", principal.name, address, header)     with every call
    client.joined("orders", "billing", "worker-1")                             with what it does

Two calls are of one client if protocol, principal, address and what it says of itself are the same. Calls over Flight
and HTTP have no end that a server sees, so a client is remembered for a while after its last call; a Kafka client for
as long as it has a connection. A caller has a bounded number of clients, and each a bounded number of memberships and
producers: the oldest are forgotten. Thread-safe: one lock, held briefly, under which nothing is called.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace.core.reports.clients import (
    ClientDescription,
    ClientIdentity,
    ClientMembership,
    ClientProducer,
    identity_of,
    shortened,
)

KEPT_SECONDS: Final = 900.0
CALLER_CLIENTS_MAX: Final = 1_000
CLIENTS_MAX: Final = 5_000
# Of one client.
MEMBERS_MAX: Final = 50
PRODUCERS_MAX: Final = 50

# Protocol, principal, address, and what the client says of itself.
_Key = tuple[str, str, str, str | ClientIdentity]
Now = Callable[[], int]


def _now_us() -> int:
    return time.time_ns() // 1000


class SeenClient:
    """One client. Its server's `Clients` guard it."""

    def __init__(self, key: _Key, now: Now) -> None:
        self.key = key
        self.protocol, self.principal, self.address, said = key
        self.identity = identity_of(said) if isinstance(said, str) else shortened(said)
        self.since_us = self.seen_us = now()
        self.connections = 0
        self._now = now
        self._lock = threading.Lock()
        self._members: OrderedDict[tuple[str, str, str], int | None] = OrderedDict()
        self._producers: OrderedDict[tuple[str, str], None] = OrderedDict()

    def joined(self, topic: str, group: str, member: str, idle_seconds: float | None = None) -> None:
        """It is a member, and last asked for messages so long ago, if it says that."""
        place = topic, group, member
        polled_us = None if idle_seconds is None else self._now() - int(idle_seconds * 1e6)
        with self._lock:
            self._members[place] = polled_us if polled_us is not None else self._members.get(place)
            self._members.move_to_end(place)
            if len(self._members) > MEMBERS_MAX:
                self._members.popitem(last=False)

    def left(self, group: str, member: str, topic: str | None = None) -> None:
        """It is no member any more, of a topic or of all."""
        with self._lock:
            for place in list(self._members):
                if place[1:] == (group, member) and topic in (None, place[0]):
                    del self._members[place]

    def publishes(self, topic: str, producer_id: str) -> None:
        """It writes to a topic as this source; without a name only where it has no other."""
        with self._lock:
            self._producers[topic, producer_id] = None
            self._producers.move_to_end((topic, producer_id))
            if len(self._producers) > PRODUCERS_MAX:
                self._producers.popitem(last=False)

    def described(self, server: str) -> ClientDescription:
        """The client as a value."""
        with self._lock:
            members = [ClientMembership(*place, polled_us) for place, polled_us in self._members.items()]
            named = {topic for topic, producer_id in self._producers if producer_id}
            producers = [ClientProducer(*place) for place in self._producers if place[1] or place[0] not in named]
        return ClientDescription(
            server,
            self.protocol,
            self.principal,
            self.address,
            self.identity,
            self.since_us,
            self._now() if self.connections else self.seen_us,
            sorted(members, key=lambda each: (each.topic, each.group, each.member)),
            sorted(producers, key=lambda each: (each.topic, each.producer_id)),
        )


class Clients:
    """The clients of one server."""

    def __init__(self, now: Now = _now_us) -> None:
        self._now = now
        self._lock = threading.Lock()
        # By caller, least recently seen first.
        self._seen: dict[str, OrderedDict[_Key, SeenClient]] = {}
        self._count = 0

    def saw(self, protocol: str, principal: str, address: str, said: str | ClientIdentity) -> SeenClient:
        """A client called; `said` is the text that it sent, or its identity."""
        key = protocol, principal, address, said
        with self._lock:
            own = self._seen.get(principal)
            client = None if own is None else own.get(key)
            if client is None or own is None:
                return self._add(key)
            client.seen_us = self._now()
            own.move_to_end(key)
            return client

    def connected(self, client: SeenClient) -> None:
        """It has a connection more, and is remembered until the last is closed."""
        with self._lock:
            client.connections += 1

    def disconnected(self, client: SeenClient) -> None:
        """It has a connection less."""
        with self._lock:
            client.connections -= 1
            own = self._seen.get(client.principal)
            if client.connections <= 0 and own is not None and own.get(client.key) is client:
                self._remove(own, client.key)

    def list(self, server: str) -> list[ClientDescription]:
        """All of them, those that called last first."""
        with self._lock:
            self._forget_old()
            seen = [client for own in self._seen.values() for client in own.values()]
        return sorted((client.described(server) for client in seen), key=lambda each: -each.seen_us)

    def _add(self, key: _Key) -> SeenClient:
        principal = key[1]
        own = self._seen.get(principal, OrderedDict())
        if len(own) >= CALLER_CLIENTS_MAX:
            self._remove(own, next(iter(own)))
        elif self._count >= CLIENTS_MAX:
            most = max(self._seen.values(), key=len)
            self._remove(most, next(iter(most)))
        client = SeenClient(key, self._now)
        self._seen.setdefault(principal, own)[key] = client
        self._count += 1
        return client

    def _forget_old(self) -> None:
        since_us = self._now() - int(KEPT_SECONDS * 1e6)
        for own in list(self._seen.values()):
            for key, client in list(own.items()):
                if client.seen_us >= since_us:
                    break
                if not client.connections:
                    self._remove(own, key)

    def _remove(self, own: OrderedDict[_Key, SeenClient], key: _Key) -> None:
        client = own.pop(key)
        self._count -= 1
        if not own:
            self._seen.pop(client.principal, None)

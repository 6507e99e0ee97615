"""One call: who calls, its messages in and out, and what it holds meanwhile.

    call = YdbCall(parts, context, "StreamRead")
    await call.admit()                         the principal, by the token of the call or a client certificate
    data = await call.read()                   the next message, counted until `release`; None at the end
    await call.write(message)                  within send_seconds_max

The caller is known from the headers before any message is read, so that a stranger's bytes stay in gRPC's smallest
window. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from headrace.core.errors import LimitExceeded, Overloaded
from headrace.edge.access import Gate, Lease, Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.envelope.received import Receiver
from headrace.edge.envelope.watched_port import KnownConnection, WatchedPort
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.ydb.names import database_of
from headrace.protocols.ydb.settings import YdbSettings
from headrace.protocols.ydb.statuses import Status, YdbRefusal

M = TypeVar("M", bound=Message)

# Messages that carry no payloads are small: a hundred times as much may come of one once it is decoded.
CONTROL_BYTES_MAX: Final = 256 << 10
# The first message of a call comes with it, or soon.
FIRST_MESSAGE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02

_TOKEN: Final = "x-ydb-auth-ticket"
_DATABASE: Final = "x-ydb-database"


class OpenSession(Protocol):
    """A read session of this server, as calls beside it know it."""

    def moving(self, topic: str, partition: int, offset: int) -> AbstractContextManager[None]:
        """While its consumer is moved to an offset, by one who names this session: it goes on."""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all calls of a server share."""

    settings: YdbSettings
    bridge: Bridge
    gate: Gate
    leases: Leases
    wakeups: LoopWakeups
    envelope: Envelope
    # HOST:PORT of this server, and whether it speaks TLS.
    own_address: tuple[str, int]
    has_tls: bool
    watch: WatchedPort
    # Read sessions by id; the partition that the next new source of a topic is linked to, by the topic's id.
    sessions: dict[str, OpenSession] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)


class YdbCall:
    """One call of a client."""

    def __init__(self, parts: SharedParts, context: Any, operation: str) -> None:
        self.parts = parts
        self.operation = operation
        self._context = context
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        self._token = metadata.get(_TOKEN) or None
        self.database = database_of(metadata.get(_DATABASE, ""))
        self.address = _host_of(context.peer())
        self._certificate_name = _certificate_name(context)
        self._room = asyncio.Event()
        self._receiver: Receiver = parts.envelope.strangers.receiver(self.address, self._room.set)
        self._principal: Principal | None = None
        self._connection: KnownConnection | None = None
        self._renewed = asyncio.Event()

    @property
    def principal(self) -> Principal:
        """Who calls."""
        assert self._principal is not None, "the caller was admitted"
        return self._principal

    async def admit(self) -> Principal:
        """Learn who calls; one who is too fast waits."""
        return await self._admit(self._token)

    async def sign_in(self, token: str) -> Principal:
        """Learn who calls by another token than that of the call, which has none yet."""
        return await self._admit(token)

    async def _admit(self, token: str | None) -> Principal:
        gate = self.parts.gate
        while True:
            if gate.is_stale:
                await self.parts.leases.refresh()
            try:
                self._principal = gate.admit(token, self.address, self.operation, self._certificate_name)
                self._connection = self.parts.watch.know(self._context.peer(), self._principal.name)
                break
            except LimitExceeded as error:
                await asyncio.sleep(max(error.retry_after_seconds, _LOOK_SECONDS))
        if gate.has_uses:
            asyncio.get_running_loop().run_in_executor(None, gate.store_uses)
        self._receiver.move(self.parts.envelope.received, self.principal.name)
        return self.principal

    async def renew(self, token: str) -> None:
        """Take another token, as clients send one every hour; it must be of the same caller."""
        before = self.principal
        renewed = await self._admit(token or self._token)
        if renewed.name != before.name:
            self._principal = before
            raise YdbRefusal(Status.UNAUTHORIZED, f"the new token is {renewed.name}'s, the session {before.name}'s")
        self._renewed.set()

    async def permitted(self, lease: Callable[[Principal], list[Lease]]) -> None:
        """Wait until the caller has lost one of the rights that it needs, and raise the reason."""
        while True:
            self._renewed.clear()
            ending = [self.parts.leases.ended(each) for each in lease(self.principal)]
            with suppress(_Renewed):
                await first_of(_raising(self._renewed), *ending)

    # Messages

    async def read(self, seconds: float | None = None) -> bytes | None:
        """The next message, or None if the client has ended its side. It is counted until it is released."""
        if not self._receiver.has_room():
            self._room.clear()
            self._receiver.wait()
            try:
                async with asyncio.timeout(self.parts.settings.room_seconds_max):
                    await self._room.wait()
            except TimeoutError:
                most = self.parts.settings.requests_bytes_max
                raise Overloaded("the memory budget of requests (limits.requests_bytes_max)", most, 0.0) from None
        try:
            async with asyncio.timeout(seconds):
                data = await self._context.read()
        except TimeoutError:
            raise YdbRefusal(Status.TIMEOUT, f"no message arrived in {seconds:g} s") from None
        if data is grpc.aio.EOF:
            return None
        self._receiver.add(len(data))
        if self._connection is not None:
            self._connection.deliver(len(data))
        self.parts.gate.limits.traffic["ydb"].bytes_in += len(data)
        return bytes(data)

    def release(self, size: int) -> None:
        """What was read takes no memory any more."""
        self._receiver.release(size)

    async def first(self, kind: type[M]) -> M:
        """The first message, which is small."""
        data = await self.read(FIRST_MESSAGE_SECONDS)
        if data is None:
            raise YdbRefusal(Status.BAD_REQUEST, "the call has no message")
        try:
            return parsed(kind, data)
        finally:
            self.release(len(data))

    async def write(self, message: Message | bytes) -> None:
        """Send a message; YdbRefusal if the client does not receive it in time."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        try:
            async with asyncio.timeout(self.parts.settings.send_seconds_max):
                await self._context.write(data)
        except TimeoutError:
            raise YdbRefusal(Status.TIMEOUT, "the client does not receive what it is sent") from None
        self.parts.gate.limits.traffic["ydb"].bytes_out += len(data)

    def close(self) -> None:
        """The call has ended: it holds nothing."""
        self._receiver.close()


def parsed(kind: type[M], data: bytes) -> M:
    """A small message; one that is large or malformed is refused."""
    if len(data) > CONTROL_BYTES_MAX:
        rule = f"at most {CONTROL_BYTES_MAX} bytes are accepted"
        raise YdbRefusal(Status.BAD_REQUEST, f"a {kind.DESCRIPTOR.name} message of {len(data)} bytes: {rule}")
    try:
        message: M = kind.FromString(data)
    except DecodeError:
        raise YdbRefusal(Status.BAD_REQUEST, f"the message is no {kind.DESCRIPTOR.full_name}") from None
    return message


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Do all of it at once until one ends, and end the others; raises what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class _Renewed(Exception):
    """The caller sent another token."""


async def _raising(event: asyncio.Event) -> None:
    await event.wait()
    raise _Renewed


def _host_of(peer: str) -> str:
    """The host of a peer such as `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer


def _certificate_name(context: Any) -> str | None:
    """What a verified client certificate is called, as Flight's port names it: gRPC's identity of the peer."""
    identities = context.peer_identities()
    return identities[0].decode(errors="replace") if identities else None

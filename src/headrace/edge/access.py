"""Access control of calls: callers are authenticated once, and every operation checks a right, long ones repeatedly.

    gate = Gate(access)
    principal = gate.admit(token, address)       Unauthenticated without a valid token
    principal.require("seek", topic, group)      Forbidden without the right that the table names
    lease = principal.lease("read", topic)       for long calls: `lease.check()` raises once the token is revoked,
                                                 has expired or lost the right
    principal.stream()                           what takes long counts against the caller's limits (`limits`)

Tokens are read again every second, so a lease ends within about a second. Threads call `check` while they wait. On an
event loop `Leases` checks for all waiters: one task runs once a second and wakes those whose lease has ended. Denied
requests and completed changes are written to the audit log here, for every protocol.

A gate is thread-safe; a principal belongs to one call, `Leases` to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from headrace.broker.access import Access, ProvenToken
from headrace.core.errors import AccessDenied, Forbidden, HeadraceError
from headrace.core.hashes.scram import ScramSecret
from headrace.core.reports.clients import ClientIdentity
from headrace.core.reports.descriptions import Identity
from headrace.core.rights import ANYONE, Caller
from headrace.edge import audit
from headrace.edge.limits import Limits
from headrace.edge.monitoring.clients import SeenClient
from headrace.edge.operations import OPERATIONS, check, check_producers

LOOK_SECONDS: Final = 0.5
# Of one call.
REFUSALS_RECORDED_MAX: Final = 20


class Lease:
    """The permission to continue one operation. `version` is the version of the tokens at the last check."""

    def __init__(
        self,
        identify: Callable[[], Caller],
        version: int,
        operation: str,
        topic: str,
        group: str | None,
        producers: Sequence[str | None],
    ) -> None:
        self.version = version
        self._identify = identify
        self._operation = operation
        self._topic = topic
        self._group = group
        self._producers = producers

    def check(self) -> None:
        """Raise if the caller may not continue."""
        caller = self._identify()
        for producer in self._producers:
            check(caller, self._operation, self._topic, self._group, producer)


class Principal:
    """The caller of one call, with its address."""

    def __init__(
        self,
        caller: Caller,
        address: str,
        identify: Callable[[], Caller] | None = None,
        version: int = 0,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.caller = caller
        self.address = address
        # The client that calls, once its protocol has said which.
        self.client: SeenClient | None = None
        self._identify = identify or (lambda: caller)
        self._version = version
        self._changes: dict[tuple[str, str | None, str | None], str] = {}
        self._named: dict[str, Any] = {}
        self._refusals = 0

    def require(self, operation: str, topic: str = "*", group: str | None = None, producer: str | None = None) -> None:
        """Raise without the right that the operation needs."""
        try:
            check(self.caller, operation, topic, group, producer)
        except Forbidden as error:
            self._record_refusal(operation, error)
            raise
        if OPERATIONS[operation].is_audited:
            self._changes[topic, group, producer] = operation

    def may(self, operation: str, topic: str, producer: str | None = None) -> bool:
        """Whether the caller has the right that the operation needs; a refusal is not recorded."""
        try:
            check(self.caller, operation, topic, producer=producer)
        except Forbidden:
            return False
        return True

    def require_producers(self, operation: str, topic: str, batch: pa.RecordBatch) -> None:
        """Raise for a batch with a producer id that the caller may not use."""
        try:
            check_producers(self.caller, topic, batch)
        except Forbidden as error:
            self._record_refusal(operation, error)
            raise

    @property
    def identity(self) -> Identity:
        """The identity of the caller, as reported by whoami."""
        caller = self.caller
        return Identity(caller.name, caller.token_id, caller.expires_us, caller.grants)

    def lease(
        self, operation: str, topic: str, group: str | None = None, producers: Sequence[str | None] = (None,)
    ) -> Lease:
        """A permission that is checked again while the call runs."""
        return Lease(self._identify, self._version, operation, topic, group, producers)

    def renew(self) -> None:
        """Look who the caller is now, in a long call; the token may have ended, or a producer id another owner."""
        self.caller = self._identify()

    @property
    def name(self) -> str:
        """The name that limits are counted by."""
        return self.caller.name

    def is_same(self) -> bool:
        """Whether its token or certificate names the same caller now, with the same rights."""
        return self._identify() == self.caller

    def stage_name(self, stage: str) -> str:
        """A stage as the broker names it: each caller has stages of its own, which no other can publish or drop."""
        return stage if self.caller == ANYONE else f"{len(self.name)}:{self.name}:{stage}"

    def stream(self) -> AbstractContextManager[None]:
        """Count as one of the caller's streams and long polls."""
        return self.limits.stream(self.name)

    def count_refusal(self, setting: str) -> None:
        """Count that a setting refused the caller."""
        self.limits.count_refusal(self.name, setting)

    def name_change(self, **named: Any) -> None:
        """Say for the audit log what is changed, beside topic, group and producer."""
        self._named.update(named)

    def record_changes(self) -> None:
        """Record in the audit log the changes that were required and are done now."""
        for (topic, group, producer), operation in self._changes.items():
            named = {"topic": topic, "group": group, "producer_id": producer, **self._named, **self._client_named()}
            audit.record("done", operation, self.caller.name, self.address, **named)
        self.forget_changes()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record a change that is required and done here, among others of the call; nothing of it if it fails."""
        try:
            yield
            self.record_changes()
        finally:
            self.forget_changes()

    def forget_changes(self) -> None:
        """Record nothing of the changes that were required: they are not done, and the call goes on with others."""
        self._changes.clear()
        self._named.clear()

    def _record_refusal(self, operation: str, error: Forbidden) -> None:
        """Record a refusal, but not each of very many in one call: one request may name thousands of topics."""
        self._refusals += 1
        if self._refusals > REFUSALS_RECORDED_MAX:
            return
        more = {"right": error.right, "topic": error.topic, "group": error.group, "producer_id": error.producer_id}
        named: dict[str, str | None] = {"token": self.caller.token_id, **self._client_named()}
        audit.record("refused", operation, self.caller.name, self.address, **more, **named)

    def called_by(self, protocol: str, said: str | ClientIdentity) -> SeenClient:
        """The client that calls, by what it says of itself."""
        self.client = self.limits.clients.saw(protocol, self.name, self.address, said)
        return self.client

    def joined(self, topic: str, group: str, member: str, idle_seconds: float | None = None) -> None:
        """The client is a member of a group, and last asked for messages so long ago, if that is known."""
        if self.client is not None:
            self.client.joined(topic, group, member, idle_seconds)

    def left(self, group: str, member: str, topic: str | None = None) -> None:
        """The client is no member any more, of a topic or of all."""
        if self.client is not None:
            self.client.left(group, member, topic)

    def publishes(self, topic: str, producer_id: str) -> None:
        """The client writes to a topic, as this source; empty if it has none."""
        if self.client is not None:
            self.client.publishes(topic, producer_id)

    def _client_named(self) -> dict[str, str]:
        """The client for the audit log: its id, its host with its process, and its library."""
        if self.client is None:
            return {}
        identity = self.client.identity
        library = f"{identity.library} {identity.version}".strip()
        return {"client": identity.client_id, "process": identity.place, "library": library}


class Gate:
    """Authenticates callers. Thread-safe."""

    def __init__(self, access: Access, limits: Limits | None = None) -> None:
        self._access = access
        self.limits = limits or Limits()

    def admit(
        self, token: str | ProvenToken | None, address: str, operation: str, certificate_name: str | None = None
    ) -> Principal:
        """The caller of this token, or of a verified client certificate; refused above its request rate."""
        version = self._access.version
        try:
            caller = self._access.authenticate(token, certificate_name)
        except AccessDenied as error:
            audit.record("refused", operation, audit.UNKNOWN, address, reason=str(error))
            raise
        self.limits.requests.take(caller.name)
        return Principal(
            caller, address, lambda: self._access.authenticate(token, certificate_name), version, self.limits
        )

    def identify(self, token: str | None) -> Caller:
        """Whose token this is; nothing is counted or recorded, as `admit` does."""
        return self._access.authenticate(token)

    def scram(self, token_id: str) -> tuple[ScramSecret, ProvenToken] | None:
        """What a client has to prove for a token, and what it has then; None if there is no such token for SCRAM."""
        return self._access.scram(token_id)

    def admit_again(self, principal: Principal) -> bool:
        """Count one more request of a caller who is still the same and not too fast; if not, `admit` says why."""
        rate = self.limits.requests
        try:
            is_same = principal.is_same()
        except HeadraceError:
            return False
        if not is_same or self.has_uses or rate.seconds_until_free(principal.name) > 0:
            return False
        rate.spend(principal.name, 1)
        return True

    def keep(self, lease: Lease) -> None:
        """Raise if the caller of a long operation may not continue; cheap while the tokens are as at the last check."""
        version = self.version
        if self.is_stale or lease.version != version:
            lease.check()
            lease.version = version

    @property
    def is_open(self) -> bool:
        """Whether everyone has full access, because there are no tokens; queries the store if it is time to."""
        return self._access.is_open()

    @property
    def is_stale(self) -> bool:
        """Whether admitting would query the store."""
        return self._access.is_stale

    def refresh(self) -> None:
        """Read the tokens from the store, if it is time to."""
        self._access.refresh()

    @property
    def has_uses(self) -> bool:
        """Whether `store_uses` has anything to do: about once a minute for each token."""
        return self._access.has_uses

    def store_uses(self) -> None:
        """Store when tokens were last used."""
        self._access.store_uses()

    @property
    def version(self) -> int:
        """Changes whenever the tokens change."""
        return self._access.version


class Leases:
    """All leases of calls that wait on one event loop."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held: dict[asyncio.Event, Lease] = {}
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[None] | None = None

    async def refresh(self) -> None:
        """Read the tokens from the store, if it is time to: once for all calls that ask meanwhile."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().run_in_executor(None, self._gate.refresh)
        await asyncio.shield(self._reading)

    async def keep(self, lease: Lease) -> bool:
        """As `Gate.keep`, for a long operation on the event loop; whether there was anything to check."""
        is_stale = self._gate.is_stale
        if is_stale:
            await self.refresh()
        if not is_stale and lease.version == self._gate.version:
            return False
        version = self._gate.version
        lease.check()
        lease.version = version
        return True

    @contextmanager
    def waking(self, lease: Lease, event: asyncio.Event) -> Iterator[None]:
        """Set an event when a lease ends; the waiter then checks the lease."""
        self._held[event] = lease
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        try:
            yield
        finally:
            del self._held[event]

    async def ended(self, lease: Lease) -> None:
        """Wait until a lease ends, and raise the reason."""
        event = asyncio.Event()
        with self.waking(lease, event):
            while True:
                await event.wait()
                event.clear()
                lease.check()

    async def _look(self) -> None:
        """Check all leases once a second, until there are no waiters."""
        while self._held:
            await asyncio.sleep(LOOK_SECONDS)
            # If the store does not answer, nothing is known; the next check may succeed.
            with suppress(HeadraceError):
                await self.refresh()
                self._wake_ended()

    def _wake_ended(self) -> None:
        version = self._gate.version
        for event, lease in list(self._held.items()):
            if lease.version == version:
                continue
            try:
                lease.check()
                lease.version = version
            except HeadraceError:
                event.set()

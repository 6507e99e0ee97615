"""Who calls: admitted once, asked for a right by every operation, and asked again for as long as a call runs.

    gate = Gate(access)
    principal = gate.admit(token, address)       Unauthenticated without a valid token
    principal.require("seek", topic, group)      Forbidden without the right that the table names
    lease = principal.lease("read", topic)       for what takes long: `lease.check()` refuses once the token is revoked,
                                                 has expired or lost the right
    principal.stream()                           what takes long counts against the caller's limits (`limits`)

Tokens are looked up again every second, so a lease ends within about a second. Threads call `check` while they wait.
On an event loop `Leases` does it for all who wait there: one task looks once a second, and wakes those whose lease is
over. Refusals, and changes that were done, go to the audit log from here, whichever protocol they came by.

A gate is safe for threads; a principal belongs to one call, `Leases` to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

import pyarrow as pa

from headrace.broker.access import Access
from headrace.core.descriptions import Identity
from headrace.core.errors import AccessDenied, Forbidden, HeadraceError
from headrace.core.rights import Caller
from headrace.edge import audit
from headrace.edge.limits import Limits
from headrace.edge.operations import OPERATIONS, check, check_producers

LOOK_SECONDS: Final = 0.5

_UNKNOWN: Final = "unknown"


class Lease:
    """The permission to go on with one operation. `version` is what was known of tokens when it was last checked."""

    def __init__(
        self, identify: Callable[[], Caller], version: int, operation: str, topic: str, group: str | None
    ) -> None:
        self.version = version
        self._identify = identify
        self._operation = operation
        self._topic = topic
        self._group = group

    def check(self) -> None:
        """Refuse if the caller may not go on."""
        check(self._identify(), self._operation, self._topic, self._group)


class Principal:
    """Who makes one call, from where."""

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
        self._identify = identify or (lambda: caller)
        self._version = version
        self._changes: dict[tuple[str, str | None], str] = {}

    def require(self, operation: str, topic: str = "*", group: str | None = None, producer: str | None = None) -> None:
        """Refuse without the right that the operation needs."""
        with self._refusals(operation):
            check(self.caller, operation, topic, group, producer)
        if OPERATIONS[operation].is_audited:
            self._changes[topic, group] = operation

    def require_producers(self, operation: str, topic: str, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a producer id that is not the caller's."""
        with self._refusals(operation):
            check_producers(self.caller, topic, batch)

    @property
    def identity(self) -> Identity:
        """Who they are, in their own eyes."""
        caller = self.caller
        return Identity(caller.name, caller.token_id, caller.expires_us, caller.grants)

    def lease(self, operation: str, topic: str, group: str | None = None) -> Lease:
        """A permission that is checked again while the call runs."""
        return Lease(self._identify, self._version, operation, topic, group)

    @property
    def name(self) -> str:
        """What its limits are counted by."""
        return self.caller.name

    def stream(self) -> AbstractContextManager[None]:
        """Hold one of the caller's streams and long polls for a while."""
        return self.limits.stream(self.name)

    def tell_limited(self, setting: str) -> None:
        """Count that a setting refused the caller."""
        self.limits.tell(self.name, setting)

    def record_changes(self) -> None:
        """Write down what was required and has been done by now, as far as it changes anything."""
        for (topic, group), operation in self._changes.items():
            audit.record("done", operation, self.caller.name, self.address, topic=topic, group=group)
        self._changes.clear()

    @contextmanager
    def _refusals(self, operation: str) -> Iterator[None]:
        try:
            yield
        except Forbidden as error:
            more = {"right": error.right, "topic": error.topic, "group": error.group, "producer_id": error.producer_id}
            token_id = self.caller.token_id
            audit.record("refused", operation, self.caller.name, self.address, token=token_id, **more)
            raise


class Gate:
    """The way in. Safe for threads."""

    def __init__(self, access: Access, limits: Limits | None = None) -> None:
        self._access = access
        self.limits = limits or Limits()

    def admit(self, token: str | None, address: str, operation: str, certificate_name: str | None = None) -> Principal:
        """Who comes with this token, or a verified client certificate of this name; refused if it asks too often."""
        version = self._access.version
        try:
            caller = self._access.authenticate(token, certificate_name)
        except AccessDenied as error:
            audit.record("refused", operation, _UNKNOWN, address, reason=str(error))
            raise
        self.limits.requests.take(caller.name)
        return Principal(
            caller, address, lambda: self._access.authenticate(token, certificate_name), version, self.limits
        )

    @property
    def is_stale(self) -> bool:
        """Whether admitting would ask the store."""
        return self._access.is_stale

    def refresh(self) -> None:
        """Ask the store about tokens, if it is time to."""
        self._access.refresh()

    @property
    def has_uses(self) -> bool:
        """Whether there is anything for `store_uses` to do, which is about once a minute for each token."""
        return self._access.has_uses

    def store_uses(self) -> None:
        """Store when tokens were last used."""
        self._access.store_uses()

    @property
    def version(self) -> int:
        """Changes whenever what is known of tokens does."""
        return self._access.version


class Leases:
    """All leases that calls on one event loop hold while they wait."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held: dict[asyncio.Event, Lease] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def waking(self, lease: Lease, event: asyncio.Event) -> Iterator[None]:
        """Have an event set when a lease is over; whoever waits for it checks the lease then."""
        self._held[event] = lease
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        try:
            yield
        finally:
            del self._held[event]

    async def ended(self, lease: Lease) -> None:
        """Wait until a lease is over, and raise why."""
        event = asyncio.Event()
        with self.waking(lease, event):
            while True:
                await event.wait()
                event.clear()
                lease.check()

    async def _look(self) -> None:
        """Look after everyone who waits, until nobody does."""
        while self._held:
            await asyncio.sleep(LOOK_SECONDS)
            # A store that does not answer tells nothing of anyone; the next look may.
            with suppress(HeadraceError):
                await asyncio.get_running_loop().run_in_executor(None, self._gate.refresh)
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

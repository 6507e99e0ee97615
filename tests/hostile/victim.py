"""A client that does what it should, with a token of its own, and notices when it has to wait.

    OPERATIONS                what it does, each over a connection of its own, by name
    with Victim(address)      them at fixed times, in a process of its own: how long each call waits

A call that was due and not yet made counts with the time since it was due, so a server that stands still for ten
seconds is seen for ten seconds, and not as one slow call. If calls take longer than the time between two of them, what
is due grows without end: then `calls` tell how long each took by itself. `cost` has one for tests, which calls one
after another.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import flight

from headrace.core.errors import HeadraceError
from headrace.wire import operations as wire
from tests.hostile.target import ORDERS, Address
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built
from tests.protocols.native.raw import RawNative

GROUP: Final = "orders-readers"
PACE_SECONDS: Final = 0.04
RETRY_SECONDS: Final = 0.1
PRODUCE, FETCH, METADATA, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 0, 1, 3, 11, 12, 14
REBALANCE_IN_PROGRESS = 27
SUBSCRIPTION: Final = b"\x00\x01\x00\x00\x00\x01\x00\x06orders" + bytes(4)

Do = Callable[[], None]
# Connects, and gives what to call.
Operation = Callable[[Address], AbstractContextManager[Do]]


class Refused(Exception):
    """The server did not do what the victim may ask for."""


def _check(error_code: int) -> None:
    if error_code:
        raise Refused(f"Kafka error {error_code}")


def _kafka(address: Address) -> RawClient:
    return RawClient(address.kafka, token=address.tokens["victim"])


@contextmanager
def produce(address: Address) -> Iterator[Do]:
    """One message."""
    data = {"index": 0, "records": built([(NOW_MS, None, b"an order", [])])}
    topics = [{"name": ORDERS, "partition_data": [data]}]
    with _kafka(address) as client:

        def do() -> None:
            answer = client.call(PRODUCE, 9, acks=-1, timeout=1000, topic_data=topics)
            _check(answer.responses[0].partition_responses[0].error_code)

        yield do


@contextmanager
def fetch(address: Address) -> Iterator[Do]:
    """The first messages."""
    wanted = [{"topic": ORDERS, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}]
    with _kafka(address) as client:

        def do() -> None:
            answer = client.call(FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1000, topics=wanted)
            _check(answer.responses[0].partitions[0].error_code)

        yield do


@contextmanager
def metadata(address: Address) -> Iterator[Do]:
    """Of one topic."""
    with _kafka(address) as client:
        yield lambda: _check(client.call(METADATA, 9, topics=[{"name": ORDERS}]).topics[0].error_code)


@contextmanager
def heartbeat(address: Address) -> Iterator[Do]:
    """Stay in a group as a static member, the only one; if others come or go, join again, as clients do."""
    member: dict[str, Any] = {"group_id": GROUP, "member_id": "", "generation_id": -1, "group_instance_id": "victim"}
    joining = {"session_timeout": 300_000, "rebalance_timeout": 300_000, "protocol_type": "consumer"}
    joining |= {"protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}
    with _kafka(address) as client:

        def join() -> None:
            named = {name: value for name, value in member.items() if name != "generation_id"}
            joined = client.call(JOIN_GROUP, 5, **named, **joining)
            _check(joined.error_code)
            member.update(member_id=joined.member_id, generation_id=joined.generation_id)
            synced = client.call(SYNC_GROUP, 3, **member, assignments=[])
            if synced.error_code != REBALANCE_IN_PROGRESS:
                _check(synced.error_code)

        def do() -> None:
            error = client.call(HEARTBEAT, 3, **member).error_code
            if error == REBALANCE_IN_PROGRESS:
                join()
            else:
                _check(error)

        join()
        yield do


@contextmanager
def publish_by_http(address: Address) -> Iterator[Do]:
    """One message."""
    headers = {"authorization": f"Bearer {address.tokens['victim']}", "content-type": "application/json"}
    body = json.dumps({"messages": [{"value": "an order"}]})
    with closing(http.client.HTTPConnection("127.0.0.1", address.http, timeout=60)) as connection:

        def do() -> None:
            connection.request("POST", f"/v1/topics/{ORDERS}/messages", body, headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status != 200:
                raise Refused(f"{answer.status} {told!r}")

        yield do


@contextmanager
def publish_natively(address: Address) -> Iterator[Do]:
    """One message over the native wire."""
    with RawNative(address.native, address.tokens["victim"]) as client:
        client.open(ORDERS)

        def do() -> None:
            client.message(b"an order")
            answer = client.answer()
            if isinstance(answer, HeadraceError):
                raise Refused(str(answer))

        yield do


@contextmanager
def offsets_by_flight(address: Address) -> Iterator[Do]:
    """Of one topic."""
    bearer = f"Bearer {address.tokens['victim']}".encode()
    options = flight.FlightCallOptions(headers=[(b"authorization", bearer)], timeout=60)
    action = flight.Action("offsets", wire.encode(wire.Offsets(ORDERS)))
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{address.flight}") as client:

        def do() -> None:
            list(client.do_action(action, options))

        yield do


OPERATIONS: Final[dict[str, Operation]] = {
    "produce": produce,
    "fetch": fetch,
    "metadata": metadata,
    "heartbeat": heartbeat,
    "HTTP publish": publish_by_http,
    "Flight offsets": offsets_by_flight,
    "native publish": publish_natively,
}
FAILURES: Final = (OSError, EOFError, AssertionError, Refused, http.client.HTTPException, pa.ArrowException)


@dataclass
class Waits:
    """How long the calls of one operation took since the last look, in seconds, and what failed."""

    seconds: list[float] = field(default_factory=list)
    # Since they were made, and not since they were due.
    calls: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Victim:
    """Operations at fixed times, in a process of its own."""

    def __init__(self, address: Address) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_observe, args=(address, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.waits()

    def waits(self) -> dict[str, Waits]:
        """What was seen of each operation since the last time."""
        self._pipe.send(None)
        seen: dict[str, Waits] = self._pipe.recv()
        return seen

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _observe(address: Address, pipe: Connection) -> None:
    """The top of the victim's process."""
    begun = threading.Barrier(len(OPERATIONS) + 1)
    observed = {name: Observed(address, operation, begun) for name, operation in OPERATIONS.items()}
    begun.wait()
    with suppress(EOFError, BrokenPipeError):
        while True:
            pipe.recv()
            pipe.send({name: each.waits() for name, each in observed.items()})


class Observed:
    """One operation, called whenever it is due."""

    def __init__(self, address: Address, operation: Operation, begun: threading.Barrier) -> None:
        self._address = address
        self._operation = operation
        self._begun = begun
        self._lock = threading.Lock()
        self._waits = Waits()
        self._due = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                with self._operation(self._address) as do:
                    if not self._due:
                        self._begun.wait()
                        self._due = time.monotonic()
                    while True:
                        time.sleep(max(0.0, self._due - time.monotonic()))
                        began = time.monotonic()
                        do()
                        with self._lock:
                            self._waits.calls.append(time.monotonic() - began)
                            self._waits.seconds.append(time.monotonic() - self._due)
                            self._due += PACE_SECONDS
            except FAILURES as error:
                # It is still due.
                with self._lock:
                    self._waits.errors.append(f"{type(error).__name__}: {error}"[:200])
                time.sleep(RETRY_SECONDS)

    def waits(self) -> Waits:
        """What was seen since the last time, with the calls that should have been made by now."""
        with self._lock:
            seen, self._waits = self._waits, Waits()
            now = time.monotonic()
            while self._due < now - PACE_SECONDS:
                seen.seconds.append(now - self._due)
                self._due += PACE_SECONDS
        return seen

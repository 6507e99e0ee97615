"""The transport to a broker in the same process: what Flight does, without a network.

Operations, tickets and answers pass through the functions that serve Flight, so tests get the same rules and errors.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import Closed, HeadraceError, again
from headrace.core.rights import ANYONE, Caller
from headrace.edge.access import Principal
from headrace.edge.dispatch import perform
from headrace.edge.limits import Limits
from headrace.protocols.flight.reads import batches_of, schema_of
from headrace.protocols.flight.uploads import Pace, WaitingUploads, publish, stage
from headrace.wire import operations, tickets


class EmbeddedTransport:
    """Calls and streams to a broker, which its creator closes. Thread-safe."""

    def __init__(self, broker: Broker, caller: Caller = ANYONE) -> None:
        self._broker = broker
        self._caller = caller
        self._limits = Limits()
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return "a broker in this process" + (" (closed)" if self._closed.is_set() else "")

    def call(self, operation: operations.Operation[operations.Answer]) -> operations.Answer:
        """Perform an operation and return its answer, both encoded as over the network."""
        self._check_open()
        received = operations.decode_operation(operations.name_of(operation), operations.encode(operation))
        assert received is not None, "the operation is known"
        answer = perform(received, self._broker, self._principal())
        return operations.decode_answer(operation, operations.encode(answer))

    def upload(self, command: tickets.Upload, schema: pa.Schema) -> EmbeddedUpload:
        """Start to publish or to stage."""
        self._check_open()
        principal, operation = self._principal(), tickets.name_of(command)
        for producer in tickets.producers_of(command):
            principal.require(operation, command.topic, producer=producer)
        return EmbeddedUpload(self._broker, command, self._closed, principal)

    def read(self, ticket: tickets.Reading) -> EmbeddedReading:
        """Start to read."""
        self._check_open()
        self._principal().require(tickets.name_of(ticket), ticket.topic)
        schema_of(ticket)
        return EmbeddedReading(self._broker, ticket, self._closed)

    def close(self) -> None:
        """End all streams."""
        self._closed.set()

    def _principal(self) -> Principal:
        return Principal(self._caller, "local", limits=self._limits)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed("the client")


class EmbeddedUpload:
    """An upload, processed by its own thread."""

    def __init__(self, broker: Broker, command: tickets.Upload, closed: threading.Event, principal: Principal) -> None:
        self._broker = broker
        self._command = command
        self._principal = principal
        self._lease = principal.lease(tickets.name_of(command), command.topic)
        self._pace = Pace(principal, closed.is_set)
        self._closed = closed
        self._written: queue.SimpleQueue[pa.RecordBatch | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[pa.Buffer | HeadraceError | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="headrace-embedded-upload", daemon=True).start()

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""
        self._written.put(batch)

    def finish(self) -> None:
        """Signal that nothing more will be written."""
        self._written.put(None)

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer; None at the end."""
        answer = self._answers.get()
        if isinstance(answer, HeadraceError):
            raise again(answer)
        return answer

    def _run(self) -> None:
        """The top of the thread."""
        try:
            if isinstance(self._command, tickets.Stage):
                name, answer = self._principal.stage_name(self._command.stage), self._answers.put
                stage(self._broker, self._command, name, self._batches(), answer, self._lease.check, self._pace)
            else:
                is_over, check = self._closed.is_set, self._lease.check
                batches, answer, waiting = self._batches(), self._answers.put, WaitingUploads()
                publish(self._broker, self._command, batches, answer, is_over, check, self._pace, waiting)
            self._answers.put(None)
        except HeadraceError as error:
            self._answers.put(error)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._written.get()) is not None:
            yield batch


class EmbeddedReading:
    """A reading in the thread of its reader."""

    def __init__(self, broker: Broker, ticket: tickets.Reading, closed: threading.Event) -> None:
        self._cancelled = threading.Event()
        self._batches = batches_of(broker, ticket, lambda: closed.is_set() or self._cancelled.is_set())

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""
        return next(self._batches, None)

    def cancel(self) -> None:
        """Want no more."""
        self._cancelled.set()

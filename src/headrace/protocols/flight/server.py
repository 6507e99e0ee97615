"""The Flight server: publish by DoPut, read by DoGet, everything else by DoAction.

Every call holds a thread of the server while it lives. pyarrow offers no way to bound those threads, so calls are
bounded here, for each caller and in total, separately for reading, for uploads and for everything else
(`edge.limits`): one more is refused at once, and its thread is free again. An upload counts from its headers on
(`access`). A follower that is cancelled or vanished is noticed within a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace import tracing
from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.errors import InvalidInput, TopicNotFound
from headrace.core.limits import OPERATION_BYTES_MAX, TICKET_BYTES_MAX
from headrace.core.messages import READ_SCHEMA
from headrace.core.rights import Right
from headrace.edge.access import Gate, Lease, Principal
from headrace.edge.arrow import batches_of_flight
from headrace.edge.dispatch import perform
from headrace.edge.envelope.watched_port import WatchedPort
from headrace.edge.limits import Limits
from headrace.protocols.flight.access import MIDDLEWARE, AccessMiddleware, kept_of, principal_of
from headrace.protocols.flight.errors import answering, translated
from headrace.protocols.flight.reads import batches_of, schema_of, without_nulls
from headrace.protocols.flight.uploads import Pace, WaitingUploads, publish, stage
from headrace.wire import operations, tickets
from headrace.wire.native import NATIVE_OFFER, Offer, encode_offer


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Flight over a broker."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        location: str,
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        limits: Limits | None = None,
        client_ca: bytes | None = None,
        native_port: int | None = None,
        watch: WatchedPort | None = None,
    ) -> None:
        """Serve at a location; with `client_ca`, PEM, only who has a certificate that it signed gets through.

        `native_port` is where clients find the native wire of this server, if it has one. `watch` bounds what
        connections bring.
        """
        self._limits = limits or Limits()
        self._gate = Gate(access, self._limits)
        super().__init__(
            location,
            tls_certificates=tls_certificates or [],
            verify_client=client_ca is not None,
            root_certificates=client_ca,
            middleware={MIDDLEWARE: AccessMiddleware(self._gate, client_ca is not None, watch)},
        )
        self._broker = broker
        self._native_port = native_port
        self._waiting = WaitingUploads()
        self.stopping = threading.Event()
        self._ending: threading.Thread | None = None

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Publish, or stage, a stream of batches."""
        with translated():
            principal, kept = principal_of(context, "do_put"), kept_of(context)
            assert kept.place is not None, "every upload has a place"
            kept.place.move(principal.name)
            given = descriptor.command or b""
            _check_size("command", len(given), TICKET_BYTES_MAX)
            command = tickets.decode_upload(given)
            operation = tickets.name_of(command)
            producers = tickets.producers_of(command)
            for producer in producers:
                principal.require(operation, command.topic, producer=producer)
            lease = principal.lease(operation, command.topic, producers=producers)
            for producer in producers:
                principal.publishes(command.topic, producer or "")

            def check(batch: pa.RecordBatch) -> None:
                principal.renew()
                principal.require_producers(operation, command.topic, batch)

            pace = Pace(principal, lambda: bool(self.stopping.is_set() or context.is_cancelled()))
            batches = _checked(batches_of_flight(reader, kept.connection), check)
            answer = answering(writer.write)
            try:
                if isinstance(command, tickets.Stage):
                    name = principal.stage_name(command.stage)
                    stage(self._broker, command, name, batches, answer, lease.check, pace)
                else:
                    is_over = self.stopping.is_set
                    publish(self._broker, command, batches, answer, is_over, lease.check, pace, self._waiting)
            except InvalidInput as error:
                # The traceback frames keep the batch alive, which may be large.
                error.__traceback__ = None
                pa.default_memory_pool().release_unused()
                raise

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Read one partition: a range, or from an offset on without end."""
        with translated():
            principal = principal_of(context, "do_get")
            kept_of(context).connection.deliver(len(ticket.ticket))
            _check_size("ticket", len(ticket.ticket), TICKET_BYTES_MAX)
            read = tickets.decode_read(ticket.ticket)
            operation = tickets.name_of(read)
            principal.require(operation, read.topic)
            batches = batches_of(self._broker, read, self._is_over(context, principal.lease(operation, read.topic)))
            schema = schema_of(read)
            if isinstance(read, tickets.Read) and read.sparse and not read.follow:
                schema, batches = without_nulls(schema, batches)
            if tracing.active is not None:
                batches = tracing.active.tracing_fetches(read.topic, batches)
            return flight.GeneratorStream(schema, self._guarded(batches, principal))

    def _is_over(self, context: flight.ServerCallContext, lease: Lease) -> Callable[[], bool]:
        """Whether the stream should end; raises once the caller loses the right."""

        def is_over() -> bool:
            self._gate.keep(lease)
            return bool(self.stopping.is_set() or context.is_cancelled())

        return is_over

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """End all streams and stop; returns whether all ended in time. A client may keep a stream open longer."""
        self.stopping.set()
        self.retire()
        return self.wait_for_calls(timeout_seconds)

    def retire(self) -> None:
        """Release the port and accept no more calls; running ones continue."""
        if self._ending is None:
            self._ending = threading.Thread(target=self.shutdown, name="headrace-flight-stop", daemon=True)
            self._ending.start()

    def wait_for_calls(self, timeout_seconds: float) -> bool:
        """Wait for the calls of a retired server; returns whether all have ended."""
        assert self._ending is not None
        self._ending.join(timeout_seconds)
        return not self._ending.is_alive()

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """A topic with an endpoint for each partition, so that any Flight client can read it in parallel."""
        with translated():
            principal = principal_of(context, "describe_topic")
            topic = _topic_of(descriptor)
            principal.require("describe_topic", topic)
            with self._limits.flight_call(principal.name):
                return self._info(topic, descriptor)

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """All topics that the caller may read."""
        with translated():
            principal = principal_of(context, "list_topics")
            with self._limits.flight_call(principal.name):
                topics = [topic for topic in self._broker.list_topics() if principal.caller.may(Right.READ, topic)]
                return iter([*self._infos(topics)])

    def do_exchange(self, context: flight.ServerCallContext, *_: Any) -> None:
        """Not supported; unauthenticated callers get the access error first."""
        with translated():
            principal_of(context, "do_exchange").require("do_exchange")

    def _infos(self, topics: Iterable[str]) -> Iterator[flight.FlightInfo]:
        for topic in topics:
            # A topic may be deleted meanwhile.
            with suppress(TopicNotFound):
                yield self._info(topic, flight.FlightDescriptor.for_path(topic))

    def _info(self, topic: str, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        described = self._broker.describe_topic(topic)
        endpoints = [
            flight.FlightEndpoint(tickets.encode(tickets.Read(topic, partition, start, end)), [])
            for partition, (start, end) in described.offsets.items()
        ]
        messages = sum(end - start for start, end in described.offsets.values())
        return flight.FlightInfo(READ_SCHEMA, descriptor, endpoints, messages, described.bytes_stored)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Run any other operation."""
        with translated():
            principal = principal_of(context, str(action.type))
            kept_of(context).connection.deliver(action.body.size)
            _check_size("operation", action.body.size, OPERATION_BYTES_MAX)
            operation = operations.decode_operation(action.type, action.body.to_pybytes())
            if operation is None:
                raise InvalidInput(
                    "action", repr(action.type)[:100], f"known actions are {', '.join(operations.OPERATIONS)}"
                )
            is_wait = isinstance(operation, operations.AwaitOffsets) and operation.wait_seconds > 0
            limit = self._limits.flight_stream if is_wait else self._limits.flight_call
            with limit(principal.name):
                return [operations.encode(perform(operation, self._broker, principal))]

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """The operations and what they do; and, for clients of this library, where the native wire is."""
        with translated():
            principal_of(context, "list_actions")
        actions = [(name, (kind.__doc__ or "").strip()) for name, kind in operations.OPERATIONS.items()]
        if self._native_port is not None:
            actions.append((NATIVE_OFFER, encode_offer(Offer(self._native_port, self._broker.servers.id))))
        return actions

    def _guarded(self, batches: Iterator[pa.RecordBatch], principal: Principal) -> Iterator[Any]:
        with translated(), self._limits.flight_stream(principal.name):
            yield from batches

    @property
    def streams_open(self) -> int:
        """How many streams there are, of readers and of uploads."""
        return self._limits.flight_streams.total + self._limits.flight_uploads.total


def _check_size(what: str, size: int, size_max: int) -> None:
    """Refuse what would take many times its size once it is decoded."""
    if size > size_max:
        raise InvalidInput(what, f"{size} bytes", f"it has at most {size_max} bytes")


def _topic_of(descriptor: flight.FlightDescriptor) -> str:
    if descriptor.descriptor_type != flight.DescriptorType.PATH or len(descriptor.path) != 1:
        raise InvalidInput("descriptor", "not a path of one part", "name the topic as a path of one part")
    return str(descriptor.path[0].decode())


def _checked(batches: Iterator[pa.RecordBatch], check: Callable[[pa.RecordBatch], None]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        check(batch)
        yield batch

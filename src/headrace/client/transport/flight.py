"""The transport over Arrow Flight.

One connection is shared by all calls and streams. When it breaks, the next use connects again, trying the addresses in
turn from the one that worked last; a connection is established once the server has answered on it. A later failure
means that the request was sent and its outcome is unknown: `AnswerLost`. If a server is stopping, or its store is
unavailable, the client switches to the next one, if there is one.

A forked process cannot use the connection of its parent; see `fork`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from headrace.client import fork
from headrace.client.addresses import Address
from headrace.client.identity import own_identity
from headrace.client.transport.errors import core_error, translated
from headrace.client.transport.following import FollowStream, NoticedFollow
from headrace.client.transport.native import Connect, NativePort, NativeUpload
from headrace.client.transport.native_socket import NativeSocket
from headrace.client.transport.transport import ReadStream, UploadStream
from headrace.core.errors import (
    AccessDenied,
    Closed,
    HeadraceError,
    LimitExceeded,
    Overloaded,
    StoreUnavailable,
    Unreachable,
    Untrusted,
)
from headrace.core.reports.clients import IDENTITY_HEADER
from headrace.wire import native, operations, tickets

# What a server that stops says is closed.
_STOPPING: Final = ("the broker", "the server", "the store")
_CONNECT_SECONDS: Final = 5.0
_CALL_SECONDS: Final = 60.0
# A connection whose other end does not acknowledge what is sent is given up after the timeout. gRPC servers end
# connections that are pinged more often than every five minutes. Each transport has connections of its own.
_GRPC_OPTIONS: Final = [
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True, eq=False)
class _Connection:
    address: Address
    client: flight.FlightClient
    # The faster way to publish to the same server, if it has one.
    native: NativePort | None = None


def deadline_seconds(operation: operations.Operation[Any]) -> float:
    """The timeout of an answer: the wait that an operation asks for is added."""
    return _CALL_SECONDS + float(getattr(operation, "wait_seconds", 0.0))


class FlightTransport:
    """Calls and streams to the first server that answers."""

    def __init__(
        self,
        addresses: Sequence[Address],
        token: str | None = None,
        root_certificates: bytes | None = None,
        client_certificate: tuple[bytes, bytes] | None = None,
        client_id: str | None = None,
    ) -> None:
        """`client_certificate` is the certificate with its chain, and its key; both are PEM."""
        self._addresses = list(addresses)
        self._client_id = client_id
        self._token = token
        self._headers: list[tuple[bytes, bytes]] = []
        self._tls: dict[str, bytes] = {}
        if root_certificates is not None:
            self._tls["tls_root_certs"] = root_certificates
        if client_certificate is not None:
            self._tls["cert_chain"], self._tls["private_key"] = client_certificate
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._closed = False
        self.generation = fork.generation

    def __repr__(self) -> str:
        # The token is never shown.
        return ",".join(address.url for address in self._addresses) + (" (closed)" if self._closed else "")

    def call(self, operation: operations.Operation[operations.Answer]) -> operations.Answer:
        """Perform an operation and return its answer."""
        connection = self._connected()
        action = flight.Action(operations.name_of(operation), operations.encode(operation))
        with self._noticing(connection):
            (answer,) = connection.client.do_action(action, self._options(deadline_seconds(operation)))
            return operations.decode_answer(operation, answer.body.to_pybytes())

    def upload(self, command: tickets.Upload, schema: pa.Schema) -> UploadStream:
        """Start to publish or to stage."""
        connection = self._connected()
        if connection.native is not None and isinstance(command, tickets.Publish):
            # One connection too many there may still be one here.
            with suppress(LimitExceeded), self._noticing(connection):
                return NoticedUpload(connection.native.upload(command), self._noticing(connection))
        descriptor = flight.FlightDescriptor.for_command(tickets.encode(command))
        with self._noticing(connection):
            writer, reader = connection.client.do_put(descriptor, schema, self._options())
        return FlightUpload(self, connection, writer, reader)

    def read(self, ticket: tickets.Reading) -> ReadStream:
        """Start to read."""
        connection = self._connected()
        if connection.native is not None and isinstance(ticket, tickets.Follow):
            return FollowStream(ticket, self._follow, self._read)
        return self._read(ticket)

    def _read(self, ticket: tickets.Reading) -> FlightReading:
        connection = self._connected()
        with self._noticing(connection):
            reader = connection.client.do_get(flight.Ticket(tickets.encode(ticket)), self._options())
        return FlightReading(self, connection, reader)

    def _follow(self, ticket: tickets.Follow) -> ReadStream:
        """Follow over the native wire if the server has it, and room for one connection more."""
        connection = self._connected()
        if connection.native is not None:
            with suppress(LimitExceeded), self._noticing(connection):
                return NoticedFollow(connection.native.follow(ticket), self._noticing(connection))
        return self._read(ticket)

    def close(self) -> None:
        """Close the connection; open streams end when their owners close them."""
        if self.generation != fork.generation:
            # The connection is the other process's, and the thread that holds the lock may be too.
            return
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        _let_go(connection)

    def _options(self, timeout_seconds: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_seconds, headers=self._headers)

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is not None:
            fork.check(self.generation, "this client")
            return connection
        # Before the lock, which a thread of the other process may hold for ever.
        fork.use_grpc()
        self.generation = fork.generation
        with self._lock:
            if self._closed:
                raise Closed("the client")
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> _Connection:
        # By now it is known which process this is.
        self._headers = [(IDENTITY_HEADER.encode(), own_identity(self._client_id))]
        if self._token:
            self._headers.append((b"authorization", f"Bearer {self._token}".encode()))
        reasons = []
        for address in list(self._addresses):
            try:
                return self._connect_to(address)
            except Unreachable as error:
                reasons.append(error.reason)
                # The next attempt begins with another.
                self._addresses.append(self._addresses.pop(0))
        raise Unreachable(",".join(address.url for address in self._addresses), "; ".join(dict.fromkeys(reasons)))

    def _connect_to(self, address: Address) -> _Connection:
        try:
            client = flight.FlightClient(address.location, generic_options=_GRPC_OPTIONS, **self._tls)
            fork.keep(client)
            with translated(address.url):
                actions = client.list_actions(self._options(_CONNECT_SECONDS))
        except (AccessDenied, LimitExceeded, Overloaded):
            # It answers; the next call gets its error.
            return _Connection(address, client)
        except Untrusted:
            raise
        except (HeadraceError, pa.ArrowException) as error:
            raise Unreachable(address.url, getattr(error, "reason", str(error))) from None
        offers = [native.decode_offer(told) for name, told in actions if name == native.NATIVE_OFFER]
        return _Connection(address, client, self._native(address, offers[0]) if offers else None)

    def _native(self, address: Address, offer: native.Offer | None) -> NativePort | None:
        """The native wire of a server, if the same server answers there."""
        connect: Connect = NativeSocket
        if urlsplit(address.location).scheme == "grpc+tls":
            # Only here: Python's TLS takes a while to import.
            from headrace.client.transport.tls_socket import TlsSocket, client_context

            try:
                connect = partial(TlsSocket, context=client_context(self._tls))
            except (OSError, ValueError):
                # Flight takes what it is given in other forms too.
                return None
        hello = native.Hello(native.VERSION, self._token, own_identity(self._client_id).decode())
        return NativePort.of(address.location, offer, connect, hello)

    def _noticing(self, connection: _Connection) -> contextlib.AbstractContextManager[None]:
        return _Noticing(self, connection)

    def drop(self, connection: _Connection) -> None:
        """Do not use a connection again."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
        _let_go(connection)

    def leave(self, connection: _Connection) -> bool:
        """Continue with another server; returns whether there is one."""
        self.drop(connection)
        with self._lock:
            if self._addresses[0] == connection.address:
                self._addresses.append(self._addresses.pop(0))
            return len(self._addresses) > 1


class _Noticing(contextlib.AbstractContextManager[None]):
    """Translates errors, and drops the connection when it broke."""

    def __init__(self, transport: FlightTransport, connection: _Connection) -> None:
        self._transport = transport
        self._connection = connection

    def __enter__(self) -> None:
        fork.check(self._transport.generation, "this client")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pa.ArrowException | OSError | ValueError | HeadraceError):
            known = error if isinstance(error, HeadraceError) else None
            found = known or core_error(error, self._connection.address.url)
            if isinstance(found, Unreachable):
                self._transport.drop(self._connection)
            is_stopping = isinstance(found, Closed) and found.what in _STOPPING
            has_next = (is_stopping or isinstance(found, StoreUnavailable)) and self._transport.leave(self._connection)
            if is_stopping and has_next:
                # It has done nothing of what it was asked.
                found = Unreachable(self._connection.address.url, "the server is stopping")
            raise found from None


def _let_go(connection: _Connection | None) -> None:
    if connection is not None and connection.native is not None:
        connection.native.close()


class NoticedUpload:
    """An upload over the native wire, whose failures are noticed as those of Flight."""

    def __init__(self, upload: NativeUpload, noticing: contextlib.AbstractContextManager[None]) -> None:
        self._upload = upload
        self._noticing = noticing

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""
        with self._noticing:
            self._upload.write(batch)

    def write_message(self, record: native.Record) -> None:
        """Send one message."""
        with self._noticing:
            self._upload.write_message(record)

    def is_usable(self) -> bool:
        """Whether a message may be written while nothing is under way."""
        return self._upload.is_usable()

    def finish(self) -> None:
        """Signal that nothing more will be written."""
        with self._noticing:
            self._upload.finish()

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer."""
        with self._noticing:
            return self._upload.read()

    def has_answer(self, timeout_seconds: float) -> bool:
        """Whether there is something to read in time."""
        return self._upload.has_answer(timeout_seconds)

    def has_whole_answer(self) -> bool:
        """Whether the next answer can be read without a wait."""
        return self._upload.has_whole_answer()

    def read_answer(self) -> pa.Buffer | native.WrittenAt | None:
        """Wait for the next answer."""
        with self._noticing:
            return self._upload.read_answer()

    def cancel(self) -> None:
        """End it; whoever reads gets an error."""
        self._upload.cancel()


class FlightUpload:
    """A DoPut stream.

    gRPC aborts a process that writes to a stream that was closed, or from two threads at once. So everything
    but reading happens under a lock, and nothing after the close.
    """

    def __init__(
        self,
        transport: FlightTransport,
        connection: _Connection,
        writer: flight.FlightStreamWriter,
        reader: flight.FlightMetadataReader,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._noticing = _Noticing(transport, connection)
        self._lock = threading.Lock()
        self._finished = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""
        with self._lock, self._noticing:
            if self._finished:
                raise Closed("the stream")
            self._writer.write_batch(batch)

    def finish(self) -> None:
        """Signal that nothing more will be written."""
        with self._lock, self._noticing:
            if not self._finished:
                self._finished = True
                self._writer.done_writing()

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer; at the end of the stream raises its error, if it has one."""
        with self._noticing:
            answer = self._reader.read()
            if answer is None:
                with self._lock:
                    self._finished = True
                    self._writer.close()
            return answer


class FlightReading:
    """A DoGet stream."""

    def __init__(self, transport: FlightTransport, connection: _Connection, reader: flight.FlightStreamReader) -> None:
        self._reader = reader
        self._noticing = _Noticing(transport, connection)

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""
        with self._noticing:
            try:
                batch: pa.RecordBatch = self._reader.read_chunk().data
            except StopIteration:
                return None
            return batch

    def cancel(self) -> None:
        """Cancel the stream."""
        self._reader.cancel()

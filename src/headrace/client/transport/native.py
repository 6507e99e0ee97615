"""Uploads and follows over the native wire, beside a Flight connection whose server announced it.

    port = NativePort.of(location, offer, connect, hello) greets; none if that fails, and Flight is used
    upload = port.upload(command)                         as a transport's: `write`, `finish`, `read`
    following = port.follow(ticket)                       as a transport's: `read`, `cancel`

A port keeps connections whose upload has ended, for the next one. Before one is used again it is looked at: a server
that has closed it was asked nothing. Each upload has a connection of its own; one thread may write while another reads.
Failures are those of a transport: `Unreachable` if nothing can have been done, `AnswerLost` once something was sent.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from headrace.client.transport.native_socket import NativeSocket
from headrace.core.errors import AnswerLost, Closed, HeadraceError, InvalidInput, ServerFailed, Unreachable
from headrace.core.messages import READ_SCHEMA
from headrace.wire import native, tickets
from headrace.wire.answers import encode_written
from headrace.wire.errors import decode_error

# Connects to a host and a port, with the patience for each wait.
Connect = Callable[[str, int, float], NativeSocket]

# A server that answers announced it: if nothing answers here, a firewall is in between.
_CONNECT_SECONDS: Final = 2.0
# An upload that was silent for longer is not written to any more: its server may be about to close it.
_SILENT_SECONDS_MAX: Final = 600.0
_IDLE_MAX: Final = 8
# What is sent to a reader before it has read it.
_CREDIT_BYTES: Final = 1 << 20
_COMPACT: Final = frozenset({"value", "key", "partition", "created_at", "seqno", "attributes"})


class NativePort:
    """The native wire of one server."""

    def __init__(self, location: str, offer: native.Offer, connect: Connect, hello: native.Hello) -> None:
        host = urlsplit(location).hostname
        assert host is not None, "a location has a host"
        self._host = host
        self._offer = offer
        self._connect = connect
        self._hello = native.frame(native.HELLO, msgspec.json.encode(hello))
        self._lock = threading.Lock()
        self._idle: deque[NativeSocket] = deque(maxlen=_IDLE_MAX)
        self.silent_seconds_max = _SILENT_SECONDS_MAX
        self._is_closed = False

    @classmethod
    def of(cls, location: str, offer: native.Offer | None, connect: Connect, hello: native.Hello) -> NativePort | None:
        """The port that was offered, if the same server answers there."""
        if offer is None:
            return None
        port = cls(location, offer, connect, hello)
        try:
            port.keep(port.connected())
        except HeadraceError:
            return None
        return port

    def __str__(self) -> str:
        return f"{self._host}:{self._offer.port}"

    def upload(self, command: tickets.Upload) -> NativeUpload:
        """Start to publish."""
        connection = self.connected()
        try:
            connection.send(native.frame(native.UPLOAD, tickets.encode(command)))
        except OSError as error:
            connection.close()
            raise Unreachable(str(self), str(error)) from None
        assert isinstance(command, tickets.Publish), "nothing else is uploaded here"
        return NativeUpload(self, connection, command)

    def follow(self, ticket: tickets.Follow) -> NativeFollow:
        """Start to follow."""
        connection = self.connected()
        try:
            connection.send(native.frame(native.FOLLOW, native.CREDIT.pack(_CREDIT_BYTES), tickets.encode(ticket)))
        except OSError as error:
            connection.close()
            raise Unreachable(str(self), str(error)) from None
        return NativeFollow(str(self), connection)

    def connected(self) -> NativeSocket:
        """A connection on which nothing is under way."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._greeted()
            if kept.is_silent():
                return kept
            kept.close()

    def keep(self, connection: NativeSocket) -> None:
        """Use a connection again, on which nothing is under way."""
        with self._lock:
            if not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close what is not used; uploads end when their owners finish them."""
        with self._lock:
            self._is_closed = True
            idle = list(self._idle)
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _greeted(self) -> NativeSocket:
        try:
            connection = self._connect(self._host, self._offer.port, _CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise Unreachable(str(self), str(error)) from None
        try:
            connection.send(self._hello)
            kind, content = connection.receive()
            if kind == native.REFUSED:
                raise _error_of(content)
            if kind != native.WELCOME or native.decode_welcome(content).server != self._offer.server:
                raise Unreachable(str(self), "another server answers there")
            connection.set_patience(None)
        except (OSError, EOFError, msgspec.DecodeError) as error:
            connection.close()
            raise Unreachable(str(self), str(error)) from None
        except BaseException:
            connection.close()
            raise
        return connection


class NativeUpload:
    """One upload. It is over when the server has said so, or refused the rest, or the connection broke."""

    def __init__(self, port: NativePort, connection: NativeSocket, command: tickets.Publish) -> None:
        self._port = port
        self._connection = connection
        self._command = command
        # For writers only: a reader waits for no writer, since the server waits for readers.
        self._writing = threading.Lock()
        self._is_finished = False
        self._written = self._answered = 0
        self._used_at = time.monotonic()

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""
        record = _record_of(batch, self._command)
        if record is not None:
            self.write_message(record)
        else:
            self._write(native.BATCH, _stream_of(batch))

    def write_message(self, record: native.Record) -> None:
        """Send one message, with the source of the stream."""
        self._write(native.MESSAGE, native.encode_record(record))

    def is_usable(self) -> bool:
        """Whether a message may be written while nothing is under way; false if it ended, or may end soon."""
        is_new = time.monotonic() - self._used_at <= self._port.silent_seconds_max
        return is_new and not self._is_finished and self._connection.is_silent()

    def _write(self, kind: bytes, content: bytes) -> None:
        with self._writing:
            if self._is_finished:
                raise Closed("the stream")
            now = time.monotonic()
            if self._written == self._answered and now - self._used_at > self._port.silent_seconds_max:
                self._is_finished = True
                self._connection.cancel()
                raise Unreachable(str(self._port), "its connection was silent for long")
            self._used_at = now
            self._written += 1
            self._send(native.frame(kind, content))

    def finish(self) -> None:
        """Signal that nothing more will be written."""
        with self._writing:
            if not self._is_finished:
                self._is_finished = True
                self._send(native.frame(native.END))

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer; None at the end."""
        answer = self.read_answer()
        return encode_written(*answer) if isinstance(answer, native.WrittenAt) else answer

    def has_answer(self, timeout_seconds: float) -> bool:
        """Whether there is something to read in time."""
        return self._connection.has_arrived(timeout_seconds)

    def has_whole_answer(self) -> bool:
        """Whether the next answer, or the end, can be read without a wait; takes what has arrived of it."""
        try:
            return self._connection.has_frame()
        except OSError:
            # Who reads it gets the error.
            return True

    def cancel(self) -> None:
        """End it; whoever reads gets an error."""
        self._is_finished = True
        self._connection.cancel()

    def read_answer(self) -> pa.Buffer | native.WrittenAt | None:
        """Wait for the next answer; None at the end."""
        try:
            kind, content = self._connection.receive()
            if kind == native.DONE:
                self._end(is_clean=self._is_finished)
                return None
            self._answered += 1
            if kind == native.RECEIPT:
                return native.WrittenAt(*native.WRITTEN.unpack(content))
            if kind == native.REFUSED and not isinstance(_error_of(content), InvalidInput):
                # Whatever follows is dropped.
                self._end(is_clean=False)
            elif kind not in (native.RECEIPTS, native.REFUSED):
                raise EOFError(f"it sent a frame of kind {kind!r}")
            return pa.py_buffer(content)
        except (OSError, EOFError, ValueError, struct.error) as error:
            self._end(is_clean=False)
            raise AnswerLost(str(self._port), str(error)) from None

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as error:
            # The reader notices it too, and closes it.
            self._is_finished = True
            self._connection.cancel()
            raise AnswerLost(str(self._port), str(error)) from None

    def _end(self, is_clean: bool) -> None:
        """Called by the reader."""
        if is_clean:
            self._port.keep(self._connection)
            return
        self._connection.cancel()
        with self._writing:
            self._is_finished = True
            self._connection.close()


class NativeFollow:
    """One stream of what is written. It ends if the server says that too much is to be read (`is_behind`)."""

    def __init__(self, address: str, connection: NativeSocket) -> None:
        self._address = address
        self._connection = connection
        self._is_cancelled = False
        # Read since the server was told last.
        self._read_bytes = 0
        self.is_behind = False

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""
        try:
            kind, content = self._connection.receive()
            if kind == native.ROWS:
                self._take_more(native.HEAD_BYTES + len(content))
                return pa.ipc.read_record_batch(pa.py_buffer(content), READ_SCHEMA)
            if kind == native.REFUSED:
                raise _error_of(content)
            if kind != native.BEHIND:
                raise EOFError(f"it sent a frame of kind {kind!r}")
            self.is_behind = True
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            self._connection.close()
            if not self._is_cancelled:
                raise AnswerLost(self._address, str(error)) from None
        except BaseException:
            self._connection.close()
            raise
        else:
            self._connection.close()
        return None

    def cancel(self) -> None:
        """Cancel the stream."""
        self._is_cancelled = True
        self._connection.cancel()

    def _take_more(self, count: int) -> None:
        self._read_bytes += count
        if self._read_bytes >= _CREDIT_BYTES // 2:
            self._connection.send(native.frame(native.MORE, native.CREDIT.pack(self._read_bytes)))
            self._read_bytes = 0


def _error_of(content: bytes) -> HeadraceError:
    return decode_error(content) or ServerFailed("it sent an error that is unknown here")


def _stream_of(batch: pa.RecordBatch) -> bytes:
    """A batch with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _record_of(batch: pa.RecordBatch, command: tickets.Publish) -> native.Record | None:
    """One message in its compact form, if the batch is one that has no more than that form says."""
    if batch.num_rows != 1:
        return None
    given = dict(zip(batch.schema.names, (column[0].as_py() for column in batch.columns), strict=True))
    # The server adds those of the stream.
    source = given.pop("producer_id", ""), given.pop("message_group_id", "")
    if source != (command.producer_id, command.message_group_id):
        return None
    created, attributes = given.pop("created_at", None), given.pop("attributes", None)
    if created is not None or attributes is not None or not given.keys() <= _COMPACT:
        return None
    return native.Record(given["value"], given.get("key"), given.get("partition"), None, given.get("seqno"))

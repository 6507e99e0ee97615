"""A client of the native wire that sends what it is told to, right or wrong."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Self

import msgspec
import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.messages import READ_SCHEMA
from headrace.wire import native, tickets
from headrace.wire.answers import decode_answer, encode_written
from headrace.wire.errors import decode_error

PATIENCE_SECONDS = 60.0


class RawNative:
    """One connection, which greets unless it is told not to, and raises what the server refuses then."""

    def __init__(self, port: int, token: str | None = None, greets: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        if greets:
            self.send(native.HELLO, msgspec.json.encode(native.Hello(native.VERSION, token)))
            kind, content = self.receive()
            if kind == native.REFUSED:
                self.socket.close()
                raise error_of(content)
            assert kind == native.WELCOME, kind

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self.socket.sendall(native.frame(kind, content))

    def open(self, topic: str, **more: object) -> None:
        """Begin an upload."""
        self.send(native.UPLOAD, tickets.encode(msgspec.convert({"topic": topic, **more}, tickets.Publish)))

    def follow(self, topic: str, credit: int = 1 << 20, **more: object) -> None:
        """Follow its first partition from the beginning."""
        ticket = msgspec.convert({"topic": topic, "positions": {0: 0}, **more}, tickets.Follow)
        self.send(native.FOLLOW, native.CREDIT.pack(credit) + tickets.encode(ticket))

    def rows(self) -> list[bytes | None] | HeadraceError:
        """The values that come next, or why there are none."""
        kind, content = self.receive()
        if kind == native.REFUSED:
            return error_of(content)
        assert kind == native.ROWS, kind
        values: list[bytes | None] = (
            pa.ipc.read_record_batch(pa.py_buffer(content), READ_SCHEMA).column("value").to_pylist()
        )
        return values

    def message(self, value: bytes | None, **more: object) -> None:
        self.send(native.MESSAGE, native.encode_record(native.Record(value, **more)))  # type: ignore[arg-type]

    def batch(self, batch: pa.RecordBatch) -> None:
        self.send(native.BATCH, stream_of(batch))

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame; EOFError at the end."""
        (size,) = native.SIZE.unpack(self._exactly(native.SIZE.size))
        frame = self._exactly(size)
        return frame[:1], frame[1:]

    def answer(self) -> pa.RecordBatch | HeadraceError:
        """The receipts of a frame, or why there are none."""
        kind, content = self.receive()
        if kind == native.RECEIPT:
            return decode_answer(encode_written(*native.WRITTEN.unpack(content)))
        if kind == native.REFUSED:
            return error_of(content)
        assert kind == native.RECEIPTS, kind
        return decode_answer(pa.py_buffer(content))

    def is_ended(self) -> bool:
        """Whether the server ends the connection; waits for that."""
        with suppress(OSError):
            return not self.socket.recv(1 << 16)
        return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the server has closed the connection")
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def error_of(content: bytes) -> HeadraceError:
    error = decode_error(content)
    assert error is not None, content
    return error


def stream_of(batch: pa.RecordBatch, **options: object) -> bytes:
    """A batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())

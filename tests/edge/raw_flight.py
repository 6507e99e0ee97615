"""Flight spoken byte by byte, as a hostile client would: Flight's own client would trip over its own lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import grpc
import pyarrow as pa

_SERVICE = "/arrow.flight.protocol.FlightService"
_COMMAND_KIND = b"\x08\x02"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def protobuf_field(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def command_field(command: bytes) -> bytes:
    """The descriptor in the first message of an upload."""
    return protobuf_field(1, _COMMAND_KIND + protobuf_field(2, command))


def flight_data(command: bytes, stream: bytes) -> Iterator[bytes]:
    """The messages of an IPC stream, as far as it can be read, as those of an upload."""
    first = command_field(command)
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
            yield (
                first
                + protobuf_field(2, message.metadata.to_pybytes())
                + protobuf_field(1000, message.body.to_pybytes())
            )
            first = b""
    except (pa.ArrowException, OSError):
        return


class Uploads:
    """Uploads over one connection, or calls of another method."""

    def __init__(self, port: int, method: str = "DoPut") -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)])
        self._put = self._channel.stream_stream(f"{_SERVICE}/{method}")

    def send(self, command: bytes, stream: bytes, timeout_seconds: float = 60.0) -> str | None:
        """Send a stream whatever is in it; the error that the upload ended with."""
        return self.send_messages(flight_data(command, stream), timeout_seconds)

    def send_messages(self, messages: Iterable[bytes], timeout_seconds: float = 60.0) -> str | None:
        """The same for messages."""
        try:
            for _ in self._put(iter(messages), timeout=timeout_seconds):
                pass
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        return None

    def close(self) -> None:
        self._channel.close()


def upload(port: int, command: bytes, stream: bytes) -> str | None:
    """Send a stream over a connection of its own; the error that the upload ended with."""
    uploads = Uploads(port)
    try:
        return uploads.send(command, stream)
    finally:
        uploads.close()

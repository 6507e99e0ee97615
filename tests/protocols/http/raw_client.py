"""Requests as bytes, for headers that no client library would send."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 60.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server hangs up, or cuts off."""
    connection.settimeout(PATIENCE_SECONDS)
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return received


def parsed(received: bytes) -> Answer:
    """The answer that some bytes are."""
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(status.split()[1]), headers, body)


def send(
    port: int, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"", version: str = "1.1"
) -> Answer:
    """Send exactly these headers, with the length of the body and a wish to close; the answer."""
    lines = [f"{method} {path} HTTP/{version}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    if body:
        lines.append(f"content-length: {len(body)}")
    lines += ["connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        return parsed(read_all(connection))

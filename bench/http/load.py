"""Load over plain sockets: as little work per request as possible, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any


class Connection:
    """A keep-alive connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request; status and body of the answer."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length)) if length else b""
        return int(head[9:12]), body

    async def begin(self, request: bytes) -> None:
        """Send a request and wait for the head of its answer only."""
        self._writer.write(request)
        await self._reader.readuntil(b"\r\n\r\n")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def request(method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
    """The bytes of a request."""
    headers = {"host": "localhost", "content-type": content_type, "content-length": len(body)}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def call(port: int, method: str, path: str, body: Any = None) -> Any:
    """One request with JSON in and out, which must succeed."""
    connection = await Connection.open(port)
    status, answer = await connection.send(request(method, path, b"" if body is None else json.dumps(body).encode()))
    connection.close()
    if not 200 <= status < 300:
        raise RuntimeError(f"{method} {path}: {status} {answer!r}")
    return json.loads(answer) if answer else None


async def rate(port: int, sent: bytes, connections: int, seconds: float) -> float:
    """How many such requests a second the server answers, all of them well."""
    opened = [await Connection.open(port) for _ in range(connections)]
    stop = time.perf_counter() + seconds

    async def run(connection: Connection) -> int:
        count = 0
        while time.perf_counter() < stop:
            status, answer = await connection.send(sent)
            if status != 200:
                raise RuntimeError(f"{status} {answer!r}")
            count += 1
        return count

    counts = await asyncio.gather(*(run(connection) for connection in opened))
    for connection in opened:
        connection.close()
    return sum(counts) / seconds

"""A TCP balancer in place of HAProxy, where that is not installed: `python -m tests.docs.balancer haproxy.cfg`.

It takes addresses, the path of the check and its authority from the page's configuration, and does the three things
that docs/three-servers.md asks of any balancer: it passes TCP on, checks `/health/ready`, and lets connections wait.
The sessions of a server that is down are ended. Only HAProxy itself can tell whether it understands the rest.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from contextlib import suppress
from itertools import cycle
from pathlib import Path

_CHECK_SECONDS = 1.0
_FALLS = 2


class Backend:
    """A server, whether it is up, and the connections to it."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.failures = _FALLS
        self.sessions: set[asyncio.StreamWriter] = set()

    @property
    def is_up(self) -> bool:
        return self.failures < _FALLS

    async def watch(self, path: str, tls: ssl.SSLContext) -> None:
        """Check it again and again."""
        while True:
            self.failures = 0 if await self._is_ready(path, tls) else self.failures + 1
            if not self.is_up:
                for session in self.sessions:
                    session.close()
            await asyncio.sleep(_CHECK_SECONDS)

    async def _is_ready(self, path: str, tls: ssl.SSLContext) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CHECK_SECONDS):
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=tls)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
                writer.close()
                return b" 200 " in status
        return False


class Balancer:
    """Connections go to the servers that are up, in turns."""

    def __init__(self, backends: list[Backend]) -> None:
        self._turns = cycle(backends)
        self._count = len(backends)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        backend = next((each for _ in range(self._count) if (each := next(self._turns)).is_up), None)
        if backend is None:
            writer.close()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection(backend.host, backend.port)
        except OSError:
            writer.close()
            return
        backend.sessions |= {writer, other_writer}
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))
        backend.sessions -= {writer, other_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(config: str) -> None:
    """Serve as the configuration says, until the process is ended."""

    def named(pattern: str) -> list[str]:
        found: list[str] = re.findall(pattern, config, re.MULTILINE)
        assert found, f"the configuration has nothing like {pattern}"
        return found

    (listen,) = named(r"^\s+bind (\S+)$")
    backends = [
        Backend(host, int(port)) for host, _, port in (each.partition(":") for each in named(r"^\s+server \w+ (\S+)$"))
    ]
    (path,) = named(r"meth GET uri (\S+)")
    (authority,) = named(r"verify required ca-file (\S+)")
    tls = ssl.create_default_context(cafile=authority)
    host, _, port = listen.partition(":")
    server = await asyncio.start_server(Balancer(backends).serve, host, int(port))
    async with server, asyncio.TaskGroup() as watching:
        for backend in backends:
            watching.create_task(backend.watch(path, tls))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_text()))

"""The design of PgQueue: a server that inserts a row and moves a counter for every message.

`python -m bench.postgres.pgqueue CONNINFO` serves POST /producer/produce on any free port and prints it. It has no
framework around it and prepared statements, so that what is measured is the design.
"""

from __future__ import annotations

import asyncio
import json
import sys

import psycopg
import uvloop

CONNECTIONS = 16
TABLES = """
CREATE TABLE IF NOT EXISTS pg_topics (topicname text PRIMARY KEY, topicid integer, consumers bigint, producers bigint,
    tailid bigint);
CREATE TABLE IF NOT EXISTS pg_queue (messageid bigint PRIMARY KEY, message text);
INSERT INTO pg_topics VALUES ('queue', 1, 0, 1, 0) ON CONFLICT DO NOTHING;
"""


class PgQueue:
    """All of the server: a few connections, each used by one request at a time."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._idle: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()

    async def open(self) -> None:
        """Connect, and make the tables."""
        for _ in range(CONNECTIONS):
            self._idle.put_nowait(await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True))
        connection = await self._idle.get()
        await connection.execute(TABLES)
        self._idle.put_nowait(connection)

    async def produce(self, message: str) -> None:
        """The flow chart of `EnqueueMessage`: check the topic, take the next id, insert, count."""
        connection = await self._idle.get()
        try:
            async with connection.transaction():
                topic = "SELECT tailid FROM pg_topics WHERE topicname = %s AND producers >= %s FOR UPDATE"
                found = await (await connection.execute(topic, ["queue", 1])).fetchone()
                assert found is not None
                await connection.execute("INSERT INTO pg_queue VALUES (%s, %s)", [found[0], message])
                await connection.execute("UPDATE pg_topics SET tailid = tailid + 1 WHERE topicname = %s", ["queue"])
        finally:
            self._idle.put_nowait(connection)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                await self.produce(body["message"])
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\n{"status": "success"}')
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main() -> None:
    """Serve until told to stop."""
    queue = PgQueue(sys.argv[1])
    await queue.open()
    server = await asyncio.start_server(queue.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())

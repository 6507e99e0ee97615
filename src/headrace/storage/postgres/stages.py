"""Stages in a table: a row per piece, the piece as an Arrow stream. Any server may write, read and drop any stage."""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa

from headrace.core.messages import with_present_types
from headrace.core.publish.placed import Places
from headrace.storage.postgres.pool import Connection, ConnectionPool
from headrace.storage.staged import StageInMemory, StagePiece

_EXPIRE = """
WITH idle AS (
    SELECT topicid, stage FROM topic_stages GROUP BY topicid, stage HAVING max(touched_us) <= %s
), dropped AS (
    DELETE FROM topic_stages USING idle WHERE topic_stages.topicid = idle.topicid AND topic_stages.stage = idle.stage
    RETURNING topic_stages.topicid, topic_stages.stage
)
SELECT count(*) FROM (SELECT DISTINCT topicid, stage FROM dropped) AS stages"""

_ADD = """
INSERT INTO topic_stages (topicid, stage, piece, rows, touched_us, messages) OVERRIDING SYSTEM VALUE
VALUES (%s, %s, %s, %s, %s, %b) ON CONFLICT DO NOTHING"""


class PostgresStages:
    """All stages of a store. Thread-safe, and safe between servers."""

    keeps_places: Final = False

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections

    def write(self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int, places: Places | None = None) -> int:
        """Add rows to a stage; returns its number of rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        messages = memoryview(sink.getvalue())
        # Drawn once: if the answer to COMMIT is lost, the retry finds the piece by its number.
        piece = self._connections.read(_next_piece)

        def add(connection: Connection) -> int:
            place = [topic_id, _digest(stage)]
            connection.execute(_ADD, [*place, piece, rows.num_rows, now_us, messages])
            query = "SELECT sum(rows)::bigint FROM topic_stages WHERE topicid = %s AND stage = %s"
            total = connection.execute(query, place).fetchone()
            assert total is not None
            return int(total[0])

        return self._connections.run(add)

    def read(self, topic_id: int, stage: str) -> StageInMemory | None:
        """The rows of a stage in the order written, or None if it does not exist."""
        query = "SELECT messages FROM topic_stages WHERE topicid = %s AND stage = %s ORDER BY piece"

        def pieces(connection: Connection) -> list[tuple[bytes]]:
            return connection.cursor(binary=True).execute(query, [topic_id, _digest(stage)]).fetchall()

        found = self._connections.read(pieces)
        batches = (pa.ipc.open_stream(messages).read_next_batch() for (messages,) in found)
        return StageInMemory([StagePiece(with_present_types(batch)) for batch in batches]) if found else None

    def drop(self, topic_id: int, stage: str) -> bool:
        """Drop a stage; returns whether it existed."""
        query = "DELETE FROM topic_stages WHERE topicid = %s AND stage = %s"
        return self._connections.run(
            lambda connection: connection.execute(query, [topic_id, _digest(stage)]).rowcount > 0
        )

    def drop_topic(self, topic_id: int) -> None:
        """Drop all stages of a topic."""
        query = "DELETE FROM topic_stages WHERE topicid = %s"
        self._connections.run(lambda connection: connection.execute(query, [topic_id]))

    def expire(self, idle_since_us: int) -> int:
        """Drop the stages without a write since then; returns how many."""

        def expire(connection: Connection) -> int:
            count = connection.execute(_EXPIRE, [idle_since_us]).fetchone()
            assert count is not None
            return int(count[0])

        return self._connections.run(expire)


def _next_piece(connection: Connection) -> int:
    number = connection.execute("SELECT nextval(pg_get_serial_sequence('topic_stages', 'piece'))").fetchone()
    assert number is not None
    return int(number[0])


def _digest(stage: str) -> bytes:
    return hashlib.blake2b(stage.encode(), digest_size=20).digest()

"""A queue of rows as libraries like pgmq keep it: inserted in batches, locked with SKIP LOCKED, deleted when done."""

from __future__ import annotations

import time
from typing import Final

import psycopg

TABLE: Final = """
CREATE TABLE bench_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    message bytea NOT NULL
)"""
_SEND: Final = "INSERT INTO bench_queue (message) SELECT unnest(%s::bytea[])"
_TAKE: Final = """
DELETE FROM bench_queue WHERE id IN (
    SELECT id FROM bench_queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s
) RETURNING id, message"""
# What vacuum has to remove, or has removed already, and what the tables take.
_DEAD: Final = """
SELECT coalesce(sum(n_tup_del + n_tup_upd), 0)::bigint, coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
FROM pg_stat_user_tables WHERE schemaname = %s"""


def through_a_queue(connection: psycopg.Connection, messages: int, batch: int) -> float:
    """Send and take N messages, a batch at a time; returns messages per second."""
    connection.execute(TABLE)
    values = [b"x" * 100] * batch
    began = time.perf_counter()
    for _ in range(messages // batch):
        connection.execute(_SEND, [values])
        taken = connection.execute(_TAKE, [batch]).fetchall()
        assert len(taken) == batch
    return messages / (time.perf_counter() - began)


def dead_rows(connection: psycopg.Connection, schema: str) -> tuple[int, int]:
    """Rows that became dead in a schema, and the bytes of its tables; the sessions that made them have ended."""
    found = connection.execute(_DEAD, [schema]).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])

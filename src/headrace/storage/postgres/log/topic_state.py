"""The state of planning beside the row of a topic: sources, writers of commit keys, the payload window.

Each is a table that is written in the transaction of the commit, under the topic's row lock. A server loads them at its
first commit to a topic; later it reads only the rows that commits of others changed, by the commit number in each row,
and only if the topic's row shows that there are any.

Every N commits, one of them trims the tables: some expired payloads, and beyond the limits of the memory the oldest
writers, and the oldest sources if they are idle too. Until then the tables may hold more than the memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa

from headrace.core.limits import LINK_IDLE_SECONDS, MICROSECONDS, ONE_TIME_WRITERS_MAX, SOURCES_MAX, WRITERS_MAX
from headrace.core.publish.payload_window import Payloads
from headrace.core.publish.sources import (
    NO_DIGEST,
    NO_LINK,
    NOTHING_WRITTEN,
    SNAPSHOT_SCHEMA,
    Source,
    SourceTable,
    SourceUpdates,
)
from headrace.core.publish.state import Commit, TopicState
from headrace.core.publish.writers import FINGERPRINT_MARK, ONE_TIME_PATTERN
from headrace.storage.postgres.log.topic_row import TopicRow, array
from headrace.storage.postgres.pool import Connection

# The tables are trimmed every N commits; at most this many expired rows of the window are deleted then.
TRIM_COMMITS: Final = 256
TRIM_ROWS: Final = 1024

_PUT_SOURCES: Final = f"""
INSERT INTO topic_sources (
    topicid, source, producer_id, message_group_id, seqno, link, used_us, commit, digest_seqno, digest)
SELECT %s, source, producer_id, message_group_id, seqno, link, %s, %s, seqno, digest
FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::bigint[], %s::integer[], %s::bigint[])
    WITH ORDINALITY AS given(source, producer_id, message_group_id, seqno, link, digest, place)
ORDER BY place
ON CONFLICT (topicid, source) DO UPDATE SET
    seqno = greatest(topic_sources.seqno, excluded.seqno),
    link = CASE WHEN topic_sources.link <> {NO_LINK}
        AND topic_sources.used_us > excluded.used_us - {LINK_IDLE_SECONDS * MICROSECONDS}
        THEN topic_sources.link ELSE excluded.link END,
    used_us = excluded.used_us,
    commit = excluded.commit,
    digest_seqno = CASE WHEN excluded.seqno >= topic_sources.seqno
        THEN excluded.digest_seqno ELSE topic_sources.digest_seqno END,
    digest = CASE WHEN excluded.seqno >= topic_sources.seqno THEN excluded.digest ELSE topic_sources.digest END"""
# A server of an earlier version updates `seqno` but not the digest: a digest of another seqno is ignored.
_DIGEST: Final = f"CASE WHEN digest_seqno = seqno THEN digest ELSE {NO_DIGEST} END"
_RESET_SOURCES: Final = """
UPDATE topic_sources SET seqno = %s, commit = %s WHERE topicid = %s AND source = ANY(%s::bytea[])"""
_PUT_WRITERS: Final = """
INSERT INTO topic_writers (topicid, writer, name, number, commit, place)
SELECT %s, writer, name, number, %s, place
FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[]) WITH ORDINALITY AS given(writer, name, number, place)
ON CONFLICT (topicid, writer) DO UPDATE SET
    number = greatest(topic_writers.number, excluded.number), commit = excluded.commit, place = excluded.place"""
_PUT_PAYLOADS: Final = "INSERT INTO topic_payloads VALUES (%s, %s, %s, %s, %s)"

_TRIM_PAYLOADS: Final = """
DELETE FROM topic_payloads WHERE topicid = %(topic)s AND time_us <= %(after)s AND commit IN (
    SELECT commit FROM topic_payloads WHERE topicid = %(topic)s ORDER BY commit LIMIT %(rows)s)"""
_TRIM_WRITERS: Final = """
DELETE FROM topic_writers WHERE topicid = %(topic)s AND name LIKE ANY(%(once)s::bytea[]) = %(is_once)s AND commit <= (
    SELECT commit FROM topic_writers WHERE topicid = %(topic)s AND name LIKE ANY(%(once)s::bytea[]) = %(is_once)s
    ORDER BY commit DESC OFFSET %(most)s LIMIT 1)"""
_ONE_TIME: Final = [ONE_TIME_PATTERN.encode(), (ONE_TIME_PATTERN + FINGERPRINT_MARK).encode()]
_TRIM_SOURCES: Final = """
DELETE FROM topic_sources WHERE topicid = %(topic)s AND used_us <= %(idle)s AND commit <= (
    SELECT commit FROM topic_sources WHERE topicid = %(topic)s ORDER BY commit DESC OFFSET %(most)s LIMIT 1)"""


def refresh(connection: Connection, topic_id: int, row: TopicRow, state: TopicState) -> None:
    """Refresh a state: apply what commits from the state's next number on changed."""
    known = state.next_number
    state.window.messages_max = row.settings.deduplication_window_messages
    if row.partitions > state.partitions:
        state.add_partitions(row.partitions)
    if known == row.commits:
        return
    if row.sources_commit > known:
        _take_sources(connection, topic_id, known, state.sources)
    if row.writers_commit > known:
        query = "SELECT name, number FROM topic_writers WHERE topicid = %s AND commit >= %s ORDER BY commit, place"
        for name, number in connection.execute(query, [topic_id, known]):
            state.remember(bytes(name).decode(), number)
    if row.payloads_commit > known:
        query = "SELECT time_us, first, second FROM topic_payloads WHERE topicid = %s AND commit >= %s ORDER BY commit"
        for time_us, first, second in connection.cursor(binary=True).execute(query, [topic_id, known]):
            hashes = np.frombuffer(first, "<u8"), np.frombuffer(second, "<u8")
            state.window.add(Payloads(*hashes, np.full(len(hashes[0]), time_us, np.int64)))
    state.end_offsets = row.ends.copy()
    state.round_robin = row.round_robin
    state.last_time_us = row.last_time_us
    state.next_number = row.commits


def load(connection: Connection, topic_id: int, row: TopicRow) -> TopicState:
    """The whole state of a topic."""
    state = TopicState(np.zeros(row.partitions, np.int64), last_time_us=row.last_time_us)
    state.sources = _load_sources(connection, topic_id)
    others = TopicRow(**{name: getattr(row, name) for name in row.__slots__} | {"sources_commit": 0})
    refresh(connection, topic_id, others, state)
    return state


def saving(connection: Connection, topic_id: int, commit: Commit, row: TopicRow) -> list[str]:
    """The statements that store what a commit changes; the row records which tables those are."""
    statements: list[str] = []
    # Parameters are part of the text, because it is sent together with other statements.
    cursor = psycopg.ClientCursor(connection)
    if commit.resets:
        digests = [_source_digest(source) for source in commit.resets]
        statements.append(cursor.mogrify(_RESET_SOURCES, [NOTHING_WRITTEN, commit.number, topic_id, digests]))
        row.sources_commit = commit.number + 1
    if commit.sources.sources:
        statements.append(cursor.mogrify(_PUT_SOURCES, _source_rows(topic_id, commit)))
        row.sources_commit = commit.number + 1
    if commit.keys:
        writers = [key.writer.encode() for key in commit.keys]
        numbers = [key.number for key in commit.keys]
        parameters = [topic_id, commit.number, [_digest(writer) for writer in writers], writers, numbers]
        statements.append(cursor.mogrify(_PUT_WRITERS, parameters))
        row.writers_commit = commit.number + 1
    payloads = commit.payloads
    if len(payloads):
        hashes = [hashes.astype("<u8").tobytes() for hashes in (payloads.first, payloads.second)]
        # The time of writing, which the broker time may be ahead of; the same for the whole commit.
        written_us = int(payloads.time_us[0])
        statements.append(cursor.mogrify(_PUT_PAYLOADS, [topic_id, commit.number, written_us, *hashes]))
        row.payloads_commit = commit.number + 1
    return statements


def trimming(
    connection: Connection, topic_id: int, row: TopicRow, state: TopicState, commits: Sequence[Commit]
) -> list[str]:
    """The statements that trim the tables to the limits of the memory."""
    cursor = psycopg.ClientCursor(connection)
    statements: list[str] = []
    present_us = [int(commit.payloads.time_us[0]) for commit in commits if len(commit.payloads)]
    if present_us:
        after_us = present_us[-1] - row.settings.deduplication_window_seconds * MICROSECONDS
        statements.append(cursor.mogrify(_TRIM_PAYLOADS, {"topic": topic_id, "after": after_us, "rows": TRIM_ROWS}))
    for writers, most in ((state.writers, WRITERS_MAX), (state.one_time_writers, ONE_TIME_WRITERS_MAX)):
        if len(writers) >= most:
            is_once = writers is state.one_time_writers
            parameters = {"topic": topic_id, "most": most, "once": _ONE_TIME, "is_once": is_once}
            statements.append(cursor.mogrify(_TRIM_WRITERS, parameters))
    if len(state.sources) >= SOURCES_MAX:
        idle_us = row.last_time_us - LINK_IDLE_SECONDS * MICROSECONDS
        outlived = {"topic": topic_id, "most": SOURCES_MAX, "idle": idle_us}
        statements.append(cursor.mogrify(_TRIM_SOURCES, outlived))
    return statements


def _load_sources(connection: Connection, topic_id: int) -> SourceTable:
    query = f"""SELECT producer_id, message_group_id, seqno, link, used_us, {_DIGEST} FROM topic_sources
        WHERE topicid = %s ORDER BY slot"""
    found = connection.cursor(binary=True).execute(query, [topic_id]).fetchall()
    columns: Sequence[Any] = list(zip(*found, strict=True)) or [()] * len(SNAPSHOT_SCHEMA)
    ids = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns[:2]]
    kinds = [field.type for field in SNAPSHOT_SCHEMA]
    numbers = [pa.array(column, kind) for column, kind in zip(columns[2:], kinds[2:], strict=True)]
    return SourceTable.restore(pa.RecordBatch.from_arrays([*ids, *numbers], schema=SNAPSHOT_SCHEMA))


def _take_sources(connection: Connection, topic_id: int, known: int, table: SourceTable) -> None:
    """Apply what others wrote of sources, commit by commit, in the same way as they did."""
    query = f"""SELECT used_us, array_agg(producer_id ORDER BY slot), array_agg(message_group_id ORDER BY slot),
            array_agg(seqno ORDER BY slot), array_agg(link ORDER BY slot), array_agg({_DIGEST} ORDER BY slot)
        FROM topic_sources WHERE topicid = %s AND commit >= %s GROUP BY commit, used_us ORDER BY commit"""
    for used_us, producers, groups, seqnos, links, digests in connection.execute(query, [topic_id, known]):
        sources = [(producer.decode(), group.decode()) for producer, group in zip(producers, groups, strict=True)]
        numbers = np.array(seqnos, np.int64), np.array(links, np.int32), np.array(digests, np.int64)
        table.put(SourceUpdates(sources, *numbers), used_us)


def _source_rows(topic_id: int, commit: Commit) -> list[Any]:
    updates = commit.sources
    producers = [producer.encode() for producer, _ in updates.sources]
    groups = [group.encode() for _, group in updates.sources]
    names = [_source_digest(source) for source in updates.sources]
    numbers = [array(updates.seqno), array(updates.link.astype(np.int64)), array(updates.digest)]
    return [topic_id, commit.time_us, commit.number, names, producers, groups, *numbers]


def _source_digest(source: Source) -> bytes:
    """A name of fixed size: an id may be too long for an index."""
    producer, group = source[0].encode(), source[1].encode()
    return _digest(len(producer).to_bytes(4, "big") + producer + group)


def _digest(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=16).digest()

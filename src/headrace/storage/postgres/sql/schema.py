"""The tables beside those of the catalog: created and upgraded by the program, one version for all of them.

    all_topics            the catalog's row of a topic, with what every commit updates: the row that commits lock
    topic_<id>            the parent of a topic's messages; empty itself
    topic_<id>_<segment>  its children by inheritance, which hold the rows; retention drops whole children
    topic_segments        the children of a topic, and where each starts
    topic_sources         highest seqno and link of each source, and the digest of the message with that seqno
    topic_writers         the last commit key of each writer
    topic_payloads        the hashes of recently written payloads, a row per commit
    topic_stages          rows that wait to be published together
    queue_consumers       a view: the consumers of the PgQueue API, and the number of each one's next message
    headrace_grants       which database role may publish to which topics by `headrace_publish`
    headrace_locks        rows that servers lock, see `storage.tables`; the table itself is locked to create the others

Inheritance instead of declarative partitions: attaching and dropping a child does not conflict with publishers or
readers of the parent. Topic names are not used as table names: identifiers are truncated at 63 bytes. Text is stored as
bytes, because text cannot hold NUL. Several servers may start at once: they create tables one after another. Advisory
locks are not used: a role that may do nothing but connect could hold them for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from psycopg import errors, sql

from headrace.core.errors import StoreUnavailable, UnknownFormat
from headrace.storage.postgres.pool import Connection
from headrace.storage.postgres.sql.functions import FUNCTIONS
from headrace.storage.tables import LOCKS, LOCKS_MAX

# 2: publishing in SQL runs with the rights of the owner and asks for a grant. 3: sources have digests. 4: values may be
# null. 5: the archive. 6: views do not show messages that were deleted on request. 7: they number messages over all
# partitions, and there is a view of the PgQueue API's consumers.
VERSION: Final = 7

_NULL_VALUES_VERSION: Final = 4
_NUMBERS_VERSION: Final = 7

_LOCKS: Final = f"""
CREATE TABLE {LOCKS} (lock integer PRIMARY KEY);
INSERT INTO {LOCKS} SELECT * FROM generate_series(0, {LOCKS_MAX - 1});
REVOKE ALL ON {LOCKS} FROM PUBLIC"""
# It excludes itself, and none of those who lock rows.
_LOCK_START: Final = f"LOCK TABLE {LOCKS} IN SHARE UPDATE EXCLUSIVE MODE"
_START_LOCK_HOLDERS: Final = f"""
SELECT pid, coalesce(usename, '?'), coalesce(application_name, ''), coalesce(host(client_addr), 'local')
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE relation = '{LOCKS}'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND granted AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')"""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS headrace_postgres (version integer NOT NULL);

ALTER TABLE all_topics
    ADD COLUMN IF NOT EXISTS tailid bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS commits bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS last_time_us bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS round_robin bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS starts bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS ends bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS byte_starts bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS byte_ends bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS first_segment integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS segment integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS sources_commit bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS writers_commit bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS payloads_commit bigint NOT NULL DEFAULT 0;
-- Changed at every commit: room in each page keeps the new version of the row beside the old one.
ALTER TABLE all_topics SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE IF NOT EXISTS topic_segments (
    topicid integer NOT NULL,
    segment integer NOT NULL,
    first_commit bigint NOT NULL,
    created_us bigint NOT NULL,
    ends bigint[] NOT NULL,
    byte_ends bigint[] NOT NULL,
    PRIMARY KEY (topicid, segment)
);

CREATE TABLE IF NOT EXISTS topic_sources (
    topicid integer NOT NULL,
    source bytea NOT NULL,
    producer_id bytea NOT NULL,
    message_group_id bytea NOT NULL,
    seqno bigint NOT NULL,
    link integer NOT NULL,
    used_us bigint NOT NULL,
    commit bigint NOT NULL,
    slot bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (topicid, source)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS topic_sources_by_commit ON topic_sources (topicid, commit);

CREATE TABLE IF NOT EXISTS topic_writers (
    topicid integer NOT NULL,
    writer bytea NOT NULL,
    name bytea NOT NULL,
    number bigint NOT NULL,
    commit bigint NOT NULL,
    place integer NOT NULL,
    PRIMARY KEY (topicid, writer)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS topic_writers_by_commit ON topic_writers (topicid, commit);

CREATE TABLE IF NOT EXISTS topic_payloads (
    topicid integer NOT NULL,
    commit bigint NOT NULL,
    time_us bigint NOT NULL,
    first bytea NOT NULL,
    second bytea NOT NULL,
    PRIMARY KEY (topicid, commit)
);

CREATE TABLE IF NOT EXISTS topic_stages (
    topicid integer NOT NULL,
    stage bytea NOT NULL,
    piece bigint GENERATED ALWAYS AS IDENTITY,
    rows bigint NOT NULL,
    touched_us bigint NOT NULL,
    messages bytea NOT NULL,
    PRIMARY KEY (topicid, stage, piece)
);
ALTER TABLE topic_stages ALTER COLUMN messages SET STORAGE EXTERNAL;
"""

_DIGESTS: Final = """
ALTER TABLE topic_sources ADD COLUMN IF NOT EXISTS digest_seqno bigint, ADD COLUMN IF NOT EXISTS digest bigint;
"""

_GRANTS: Final = """
CREATE TABLE IF NOT EXISTS headrace_grants (
    grantee regrole NOT NULL,
    pattern text NOT NULL,
    PRIMARY KEY (grantee, pattern)
);
REVOKE ALL ON headrace_grants, headrace_postgres, headrace_catalog,
    all_topics, all_archives, all_archive_files, all_consumers, all_groups, all_members, all_pipelines, all_producers,
    all_queue_consumers, all_servers, all_tokens, topic_segments, topic_sources, topic_writers, topic_payloads,
    topic_stages FROM PUBLIC;
-- What functions keep as their own: `pg_temp` comes first unless it is named.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
"""

_MESSAGES: Final = """
CREATE TABLE {table} (
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    time_us bigint NOT NULL,
    bytes_before bigint NOT NULL,
    value bytea,
    key bytea,
    attributes bytea[],
    codec bytea,
    created_us bigint,
    producer_id bytea,
    message_group_id bytea,
    seqno bigint
)"""

# The number of a message is how many were written before it, as the PgQueue API hands them out. Numbers are joined, and
# each row is provably found once: a query that does not name `messageid` is planned without them.
_VIEW: Final = """
CREATE OR REPLACE VIEW {view} AS SELECT
    partition,
    "offset",
    messageid,
    to_timestamp(time_us / 1e6) AS "timestamp",
    headrace_text(value) AS message,
    headrace_text(key) AS key,
    headrace_json(attributes) AS attributes,
    headrace_text(codec) AS codec,
    to_timestamp(created_us / 1e6) AS created_at,
    headrace_text(producer_id) AS producer_id,
    headrace_text(message_group_id) AS message_group_id,
    seqno,
    value
FROM {table} CROSS JOIN (
    SELECT deleted_before::jsonb AS deleted FROM all_topics WHERE topicid = {topic} OFFSET 0
) AS topic LEFT JOIN (
    SELECT DISTINCT ON (partition, "offset") partition, "offset", dropped - 1 + row_number() OVER (
        ORDER BY time_us, partition, "offset"
    ) AS messageid
    FROM {table} CROSS JOIN (
        SELECT starts, coalesce((SELECT sum(start) FROM unnest(starts) AS start), 0)::bigint AS dropped
        FROM all_topics WHERE topicid = {topic} OFFSET 0
    ) AS topic
    WHERE "offset" >= coalesce(starts[partition + 1], 0)
) AS numbers USING (partition, "offset")
WHERE "offset" >= coalesce((deleted ->> partition)::bigint, 0)"""

# Of each consumer of the PgQueue API, whose group has its id in its name: the `messageid` of its next message.
_QUEUE_CONSUMERS: Final = """
CREATE VIEW queue_consumers AS SELECT
    substr(groupname, length('queue-consumer-') + 1)::numeric AS consumerid,
    topicname,
    (
        SELECT sum(greatest(
            queueoffset, starts[number + 1], (deleted_before::jsonb ->> number)::bigint, 0
        ))::bigint
        FROM generate_series(0, partitions - 1) AS number LEFT JOIN all_consumers
        ON all_consumers.topicid = all_topics.topicid AND all_consumers.groupname = all_groups.groupname
            AND partition = number
    ) AS queueoffset
FROM all_groups JOIN all_topics USING (topicid) WHERE groupname ~ '^queue-consumer-[0-9]{1,28}$'"""

# Prefixes of our tables, now and later: a view of such a name could conflict with one.
_RESERVED: Final = ("all_", "headrace_", "topic_", "pg_")
_IDENTIFIER_BYTES_MAX: Final = 63
_VIEW_NAMES: Final = ("queue_consumers",)


def make_schema(connection: Connection, schema: str) -> None:
    """Create the schema if it does not exist: creating it needs a right that using it does not."""
    found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone()
    if found is None:
        _create(connection, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


def make_locks(connection: Connection) -> None:
    """Create the table of the locks if it does not exist."""
    if connection.execute(f"SELECT to_regclass('{LOCKS}')").fetchone() == (None,):
        _create(connection, sql.SQL(_LOCKS))


def _create(connection: Connection, statements: sql.SQL | sql.Composed) -> None:
    """Create what another server may be creating too: then this waits for it to be there."""
    with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema), connection.transaction():
        connection.execute(statements)


@contextmanager
def making_tables(connection: Connection, store: str) -> Iterator[None]:
    """Exclude other servers from creating tables in this schema; all that `connection` does here is one transaction."""
    with connection.transaction():
        # Many may start at once: only the statement timeout bounds the wait.
        connection.execute("SET LOCAL lock_timeout = 0")
        try:
            with connection.transaction():
                connection.execute(_LOCK_START)
        except errors.QueryCanceled as error:
            raise StoreUnavailable(store, _start_lock_held(connection)) from error
        yield


def _start_lock_held(connection: Connection) -> str:
    """Who keeps servers from starting, and what to do."""
    held = "a lock that a server needs while it starts was not free for statement_timeout_seconds (in the URL)"
    holders = connection.execute(_START_LOCK_HOLDERS).fetchall()
    if not holders:
        return f"{held}; it is free now: start again"
    named = ", ".join(f"process {pid} of role {role} ({name} from {host})" for pid, role, name, host in holders)
    cure = f"wait if that is a server that starts, else end the session: SELECT pg_terminate_backend({holders[0][0]})"
    return f"{held}: {named} holds {LOCKS}; {cure}"


def check_version(connection: Connection, store: str) -> None:
    """Refuse an unknown newer version before anything is touched."""
    version = _version(connection)
    if version is not None and version > VERSION:
        raise UnknownFormat(store, version, VERSION)


def _version(connection: Connection) -> int | None:
    if connection.execute("SELECT to_regclass('headrace_postgres')").fetchone() == (None,):
        return None
    version = connection.execute("SELECT version FROM headrace_postgres").fetchone()
    return None if version is None else int(version[0])


def make_tables(connection: Connection) -> None:
    """Create what is missing, after the catalog created its tables; replace what an earlier version created."""
    version = _version(connection)
    if version == VERSION:
        return
    with connection.transaction():
        if version is None:
            connection.execute(_TABLES)
        connection.execute(_DIGESTS)
        if version is not None and version < _NULL_VALUES_VERSION:
            _allow_null_values(connection)
        if version is not None and version < _NUMBERS_VERSION:
            _replace_views(connection)
        if connection.execute("SELECT to_regclass('queue_consumers')").fetchone() == (None,):
            connection.execute(_QUEUE_CONSUMERS)
        connection.execute(_GRANTS)
        connection.execute(FUNCTIONS)
        connection.execute("DELETE FROM headrace_postgres")
        connection.execute("INSERT INTO headrace_postgres VALUES (%s)", [VERSION])


def _allow_null_values(connection: Connection) -> None:
    """Let the values of all topics be null; the segments inherit it from their parent."""
    for (topic_id,) in connection.execute("SELECT topicid FROM all_topics").fetchall():
        change = sql.SQL("ALTER TABLE IF EXISTS {} ALTER COLUMN value DROP NOT NULL")
        connection.execute(change.format(table_of(topic_id)))


def _replace_views(connection: Connection) -> None:
    """Define the views of all topics again; a view of the same name that someone else made stays."""
    ours = "SELECT 1 FROM pg_views WHERE schemaname = current_schema() AND viewname = %s AND definition ~ %s"
    for topic_id, key in connection.execute("SELECT topicid, topickey FROM all_topics").fetchall():
        if connection.execute(ours, [key, rf"\mtopic_{topic_id}\M"]).fetchone() is not None:
            _make_view(connection, topic_id, key)


def _make_view(connection: Connection, topic_id: int, key: str) -> None:
    view = sql.SQL(_VIEW).format(view=sql.Identifier(key), table=table_of(topic_id), topic=sql.Literal(topic_id))
    connection.execute(view)


def table_of(topic_id: int, segment: int | None = None) -> sql.Identifier:
    """The table of a topic's messages, or of one of its segments."""
    return sql.Identifier(f"topic_{topic_id}" if segment is None else f"topic_{topic_id}_{segment}")


def make_topic(connection: Connection, topic_id: int, key: str, created_us: int) -> None:
    """Create the tables of a topic, and the view for people."""
    connection.execute(sql.SQL(_MESSAGES).format(table=table_of(topic_id)))
    make_segment(connection, topic_id, 0)
    insert = "INSERT INTO topic_segments VALUES (%s, 0, 0, %s, '{}', '{}')"
    connection.execute(insert, [topic_id, created_us])
    # Checked first: a failure inside a transaction would need a savepoint.
    taken = connection.execute("SELECT to_regclass(quote_ident(%s))", [key]).fetchone()
    if is_viewable(key) and taken == (None,):
        _make_view(connection, topic_id, key)


def is_viewable(key: str) -> bool:
    """Whether a view may have the name of this topic."""
    return len(key.encode()) <= _IDENTIFIER_BYTES_MAX and not key.startswith(_RESERVED) and key not in _VIEW_NAMES


def make_segment(connection: Connection, topic_id: int, segment: int) -> None:
    """Create the table for the next messages of a topic."""
    statement = 'CREATE TABLE {child} (PRIMARY KEY (partition, "offset")) INHERITS ({parent})'
    connection.execute(sql.SQL(statement).format(child=table_of(topic_id, segment), parent=table_of(topic_id)))


def drop_topic(connection: Connection, topic_id: int) -> None:
    """Drop everything a topic had here."""
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(table_of(topic_id)))
    for table in ("topic_segments", "topic_sources", "topic_writers", "topic_payloads", "topic_stages"):
        connection.execute(sql.SQL("DELETE FROM {} WHERE topicid = %s").format(sql.Identifier(table)), [topic_id])


def stray_topics(connection: Connection) -> list[int]:
    """The topics that have tables but are not in the catalog: a server died between the two steps of deleting them.

    A topic's tables are created in the transaction that adds it to the catalog, so none is being created now.
    """
    query = "SELECT DISTINCT topicid FROM topic_segments WHERE topicid NOT IN (SELECT topicid FROM all_topics)"
    return [topic_id for (topic_id,) in connection.execute(query)]

"""The tables of the catalog, the same on SQLite and PostgreSQL, and how they are created and upgraded.

Names follow PgQueue where it has them. Tables of an earlier version get the columns they lack; those of a newer one are
refused.

On PostgreSQL, pages of rows that change often have free space, and no indexed column changes: so updates are
heap-only (HOT), and old versions are removed without a vacuum.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from zlib import crc32

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateColumn, CreateTable

from headrace.core.errors import StoreUnavailable, UnknownFormat

# 2: tokens have an end and a last use. 3: the archive. 4: offsets below which messages were deleted. 5: what Kafka's
# clients say with a commit, and keys of SCRAM. 6: members of groups on disk, and without times. 7: commits of several
# topics. 8: until when callers without a token are served.
VERSION: Final = 8

metadata = MetaData()

# How full PostgreSQL fills a page of rows that are changed in place, in percent.
_IN_PLACE: Final[dict[str, Any]] = {"postgresql_with": {"fillfactor": 50}}


def _topicid(primary_key: bool = False) -> Column[int]:
    """The topic that a row belongs to, and with which it is deleted."""
    owner = ForeignKey("all_topics.topicid", ondelete="CASCADE")
    return Column("topicid", Integer, owner, nullable=False, primary_key=primary_key)


# One row: the version of these tables, the id of the store, which is made when it is first needed, and on disk the
# number of the last commit of several topics.
headrace_catalog = Table(
    "headrace_catalog",
    metadata,
    Column("version", Integer, nullable=False),
    Column("storeid", Text),
    Column("commits", BigInteger, nullable=False, server_default="0"),
)

# `topickey` is the name without case, which must be unique; `topicname` is the name as it was given. `deleted_before`
# is JSON: by partition the offset below which messages were deleted on request.
all_topics = Table(
    "all_topics",
    metadata,
    Column("topicid", Integer, primary_key=True, autoincrement=True),
    Column("topickey", Text, nullable=False),
    Column("topicname", Text, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("settings", Text, nullable=False),
    Column("consumers", BigInteger, nullable=False, default=0),
    Column("producers", BigInteger, nullable=False, default=0),
    Column("created_us", BigInteger, nullable=False),
    Column("deleted_before", Text, nullable=False, server_default="[]"),
    UniqueConstraint("topickey"),
    sqlite_autoincrement=True,
)

all_groups = Table(
    "all_groups",
    metadata,
    _topicid(),
    Column("groupname", Text, nullable=False),
    Column("consumers", Integer),
    Column("important", Boolean, nullable=False),
    Column("read_from", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("seek_generation", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("topicid", "groupname"),
    **_IN_PLACE,
)

# The members of groups: `members` is JSON, written when members, what they own, or the servers that hear them change.
all_members = Table(
    "all_members",
    metadata,
    _topicid(),
    Column("groupname", Text, nullable=False),
    Column("members", Text, nullable=False),
    PrimaryKeyConstraint("topicid", "groupname"),
    **_IN_PLACE,
)

# The epoch of the newest producer of a source in a shared store. `sourcehash` replaces the two ids, which may contain
# what text and indexes of PostgreSQL cannot.
all_producers = Table(
    "all_producers",
    metadata,
    _topicid(),
    Column("sourcehash", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    PrimaryKeyConstraint("topicid", "sourcehash"),
    **_IN_PLACE,
)

# The committed offsets of groups: `queueoffset` is the next offset to read. The others are what a client of Kafka said
# with this commit (`core/groups/notes.py`): `committed` is its offset, which may lie outside of the partition.
all_consumers = Table(
    "all_consumers",
    metadata,
    _topicid(),
    Column("groupname", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("queueoffset", BigInteger, nullable=False),
    Column("committed", BigInteger),
    Column("leader_epoch", Integer),
    Column("metadata", LargeBinary),
    PrimaryKeyConstraint("topicid", "groupname", "partition"),
    **_IN_PLACE,
)

# When each consumer of the queue API was last active: idle ones are deleted.
all_queue_consumers = Table(
    "all_queue_consumers",
    metadata,
    _topicid(),
    Column("groupname", Text, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("topicid", "groupname"),
)

# Access tokens: only the hash of the secret is stored; `grants` is JSON; `used_us` is about when it was last used;
# `scram` is JSON: salt, iterations and keys of SCRAM, which are null for tokens of earlier versions; `grace_until_us`
# is of a store's first token: until then callers without one are served.
all_tokens = Table(
    "all_tokens",
    metadata,
    Column("tokenid", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("grants", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    Column("used_us", BigInteger),
    Column("scram", Text),
    Column("grace_until_us", BigInteger),
)

# The last report of each pipeline to the topic that it reads, or else writes: `report` is JSON.
all_pipelines = Table(
    "all_pipelines",
    metadata,
    _topicid(),
    Column("pipelinename", Text, nullable=False),
    Column("report", Text, nullable=False),
    Column("reported_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("topicid", "pipelinename"),
    **_IN_PLACE,
)

# The servers that share a store: `addresses` is JSON, a URL by protocol; the times are those of the database's clock.
all_servers = Table(
    "all_servers",
    metadata,
    Column("serverid", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("addresses", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("heartbeat_us", BigInteger, nullable=False),
    **_IN_PLACE,
)

# Which server of a shared store runs a group whose members only that server knows, such as those of Kafka's protocol,
# and their kind. It counts as long as the server is among `all_servers`.
all_claims = Table(
    "all_claims",
    metadata,
    _topicid(),
    Column("groupname", Text, nullable=False),
    Column("serverid", Text, nullable=False),
    Column("kind", Text, nullable=False),
    PrimaryKeyConstraint("topicid", "groupname"),
)

# How far each topic is archived: `ends` is JSON, an offset by partition; `cut_us` is the time of the last file. In a
# shared store the server `holder` archives it, until `until_us` by the database's clock; each holder has its own epoch.
all_archives = Table(
    "all_archives",
    metadata,
    _topicid(primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("ends", Text, nullable=False),
    Column("cut_us", BigInteger, nullable=False),
    Column("holder", Text),
    Column("epoch", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    **_IN_PLACE,
)

# The files of the archive: `place` orders those of a topic, `ranges` is JSON, `removed_us` is null while it is live.
all_archive_files = Table(
    "all_archive_files",
    metadata,
    _topicid(),
    Column("path", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False),
    Column("ranges", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("removed_us", BigInteger),
    PrimaryKeyConstraint("topicid", "path"),
)

# The last commit of each writer of commits of several topics; a fingerprint tells commits with one number apart.
all_writers = Table(
    "all_writers",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("fingerprint", BigInteger),
    Column("written_us", BigInteger, nullable=False),
    **_IN_PLACE,
)

# The commits of several topics of a disk store whose last frames may not be in their segments yet: for each topic the
# frame, where it belongs, and which frame is before it.
all_journal = Table(
    "all_journal",
    metadata,
    Column("number", BigInteger, nullable=False),
    Column("topicid", Integer, nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("before_position", BigInteger, nullable=False),
    Column("before_checksum", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("frame", LargeBinary, nullable=False),
    PrimaryKeyConstraint("number", "topicid"),
)

# Locks of a shared store: the rows of a table, since anyone who may connect can hold the advisory locks of a database.
# One is for commits that are store-wide, the others for groups that do not exist yet, by their names.
LOCKS: Final = "headrace_locks"
LOCKS_MAX: Final = 64
STORE_WIDE_LOCK: Final = 0

# By what Kafka's clients name groups: without their topics. Groups of a file are read in no time.
_GROUPS_BY_NAME: Final = "all_groups_by_name"

# Columns that tables of an earlier version lack; each may be null or has a default.
ADDED_COLUMNS: Final = (
    all_topics.c.deleted_before,
    all_groups.c.seek_generation,
    all_consumers.c.committed,
    all_consumers.c.leader_epoch,
    all_consumers.c.metadata,
    all_tokens.c.expires_us,
    all_tokens.c.used_us,
    all_tokens.c.scram,
    all_tokens.c.grace_until_us,
    headrace_catalog.c.storeid,
    headrace_catalog.c.commits,
)


def take_lock(number: int) -> str:
    """The statement that takes a lock of a shared store until the end of the transaction."""
    return f"SELECT lock FROM {LOCKS} WHERE lock = {number} FOR UPDATE"


def name_lock(topic_id: int, name: str) -> int:
    """The lock for a name in a topic; other names may have the same."""
    return STORE_WIDE_LOCK + 1 + crc32(f"{topic_id} {name}".encode()) % (LOCKS_MAX - 1)


def create_tables(connection: Connection, store: str) -> None:
    """Create the tables that do not exist, and upgrade those of an earlier version."""
    existing, is_postgres = set(inspect(connection).get_table_names()), connection.dialect.name == "postgresql"
    for name, statement in _creation_statements(is_postgres).items():
        if name not in existing:
            connection.exec_driver_sql(statement)
    if is_postgres and connection.exec_driver_sql(f"SELECT to_regclass('{_GROUPS_BY_NAME}')").scalar() is None:
        connection.exec_driver_sql(f"CREATE INDEX {_GROUPS_BY_NAME} ON {all_groups.name} (groupname)")
    version = connection.execute(select(headrace_catalog.c.version)).scalar()
    if version is None:
        connection.execute(insert(headrace_catalog).values(version=VERSION))
    elif version > VERSION:
        raise UnknownFormat(store, version, VERSION)
    elif version < VERSION:
        _upgrade(connection)


def check_tables(connection: Connection, store: str) -> None:
    """Refuse a store that does not exist or is of another version; nothing is changed."""
    has_version = inspect(connection).has_table(headrace_catalog.name)
    version = connection.execute(select(headrace_catalog.c.version)).scalar() if has_version else None
    if version is None:
        raise StoreUnavailable(store, "there is no store here: `headrace serve` creates one")
    if version < VERSION:
        raise StoreUnavailable(store, "an earlier version created it: start a server of this version once")
    if version > VERSION:
        raise UnknownFormat(store, version, VERSION)


def _upgrade(connection: Connection) -> None:
    """Add the columns that tables of an earlier version lack; a process that has them open is not affected."""
    for column in ADDED_COLUMNS:
        known = {found["name"] for found in inspect(connection).get_columns(column.table.name)}
        if column.name not in known:
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}")
    connection.execute(update(headrace_catalog).values(version=VERSION))


@cache
def _creation_statements(is_postgres: bool) -> dict[str, str]:
    """The statement that creates each table, in an order in which they can be executed.

    Compiled once per process: `create_all` compiles each of them again, and asks for each table, at every opening.
    """
    make_dialect: Any = postgresql.dialect if is_postgres else sqlite.dialect
    dialect = make_dialect()
    return {table.name: str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables}

"""The tables of the catalog, the same on SQLite and PostgreSQL; names follow seed 004 where it has them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

VERSION: Final = 1

metadata = MetaData()

# One row: the version of these tables.
headrace_catalog = Table("headrace_catalog", metadata, Column("version", Integer, nullable=False))

# `topickey` is the name without case, which must be unique; `topicname` is the name as it was given.
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
    UniqueConstraint("topickey"),
    sqlite_autoincrement=True,
)

all_groups = Table(
    "all_groups",
    metadata,
    Column("topicid", Integer, ForeignKey("all_topics.topicid", ondelete="CASCADE"), nullable=False),
    Column("groupname", Text, nullable=False),
    Column("consumers", Integer),
    Column("important", Boolean, nullable=False),
    Column("read_from", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    PrimaryKeyConstraint("topicid", "groupname"),
)

# Where each group stands: `queueoffset` is the next offset to read.
all_consumers = Table(
    "all_consumers",
    metadata,
    Column("topicid", Integer, ForeignKey("all_topics.topicid", ondelete="CASCADE"), nullable=False),
    Column("groupname", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("queueoffset", BigInteger, nullable=False),
    PrimaryKeyConstraint("topicid", "groupname", "partition"),
)

# Who may come in: `secret_hash` is all that is kept of a token; `grants` is JSON.
all_tokens = Table(
    "all_tokens",
    metadata,
    Column("tokenid", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("grants", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

"""The catalog: which topics, groups and committed offsets there are, in SQL, the same code for every engine.

Every method is one transaction, durable when it returns. A lock orders the calls of this process, so that the one
in-memory connection of the memory engine can serve many threads too. An unknown newer version of the tables is
refused. Groups come and go without their members: those live in the broker that they talk to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DBAPIError

from headrace.core.errors import Closed, StoreUnavailable, UnknownFormat
from headrace.core.groups import Group, ReadFrom
from headrace.core.ids import Kind
from headrace.core.rights import Grant
from headrace.core.settings import TopicSettings
from headrace.storage.tables import (
    VERSION,
    all_consumers,
    all_groups,
    all_tokens,
    all_topics,
    headrace_catalog,
    metadata,
)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as the catalog has it: never the secret itself."""

    id: str
    name: str
    secret_hash: str
    grants: tuple[Grant, ...]
    created_us: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as the catalog has it."""

    id: int
    name: str
    key: str
    partitions: int
    settings: TopicSettings
    created_us: int


class Catalog:
    """The catalog over a database. Safe for threads."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._lock = threading.Lock()
        self._closed = False
        with self._transaction() as connection:
            metadata.create_all(connection)
            version = connection.execute(select(headrace_catalog.c.version)).scalar()
            if version is None:
                connection.execute(insert(headrace_catalog).values(version=VERSION))
            elif version > VERSION:
                raise UnknownFormat(name, version, VERSION)

    def topics(self) -> list[TopicRecord]:
        """All topics in the order they were made."""
        with self._transaction() as connection:
            rows = connection.execute(select(all_topics).order_by(all_topics.c.topicid)).all()
        return [_topic(row) for row in rows]

    def add_topic(
        self,
        name: str,
        key: str,
        partitions: int,
        settings: TopicSettings,
        now_us: int,
        prepare: Callable[[TopicRecord], None],
    ) -> TopicRecord:
        """Add a topic; `prepare` makes its log before the row is committed, so that a topic always has one."""
        values = {"topickey": key, "topicname": name, "partitions": partitions, "created_us": now_us}
        with self._transaction() as connection:
            row = insert(all_topics).values(settings=msgspec.json.encode(settings).decode(), **values)
            topic_id = connection.execute(row).inserted_primary_key
            assert topic_id is not None
            record = TopicRecord(topic_id[0], name, key, partitions, settings, now_us)
            prepare(record)
        return record

    def change_topic(self, topic: TopicRecord) -> None:
        """Store other partitions or settings of a topic."""
        settings = msgspec.json.encode(topic.settings).decode()
        change = update(all_topics).where(all_topics.c.topicid == topic.id)
        with self._transaction() as connection:
            connection.execute(change.values(partitions=topic.partitions, settings=settings))

    def remove_topic(self, topic_id: int) -> None:
        """Remove a topic with its groups and offsets."""
        with self._transaction() as connection:
            for table in (all_consumers, all_groups, all_topics):
                connection.execute(delete(table).where(table.c.topicid == topic_id))

    def groups(self, topic_id: int) -> list[Group]:
        """The groups of a topic by name, without members."""
        query = select(all_groups).where(all_groups.c.topicid == topic_id).order_by(all_groups.c.groupname)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return [_group(row) for row in rows]

    def put_group(self, topic_id: int, group: Group, offsets: Mapping[int, int] | None = None) -> None:
        """Store a group, new or changed, and offsets to begin with."""
        values = {
            "consumers": group.consumers,
            "important": group.important,
            "read_from": msgspec.json.encode(group.read_from).decode(),
            "generation": group.generation,
        }
        row = upsert(all_groups).values(topicid=topic_id, groupname=group.name, **values)
        with self._transaction() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["topicid", "groupname"], set_=values))
            _put_offsets(connection, topic_id, group.name, offsets or {})

    def remove_group(self, topic_id: int, group: str) -> None:
        """Remove a group with its offsets."""
        with self._transaction() as connection:
            for table in (all_consumers, all_groups):
                connection.execute(delete(table).where(table.c.topicid == topic_id, table.c.groupname == group))

    def offsets(self, topic_id: int, group: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        columns = all_consumers.c
        query = select(columns.partition, columns.queueoffset).where(
            columns.topicid == topic_id, columns.groupname == group
        )
        with self._transaction() as connection:
            return {row.partition: row.queueoffset for row in connection.execute(query)}

    def put_offsets(self, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        """Store committed offsets."""
        with self._transaction() as connection:
            _put_offsets(connection, topic_id, group, offsets)

    def take_number(self, topic_id: int, kind: Kind) -> int | None:
        """The next number of a consumer or producer of the queue API, counted from 1; none without the topic."""
        column = _counter(kind)
        step = update(all_topics).where(all_topics.c.topicid == topic_id).values({column: column + 1})
        with self._transaction() as connection:
            number: int | None = connection.execute(step.returning(column)).scalar()
        return number

    def numbers_given(self, topic_id: int, kind: Kind) -> int | None:
        """How many such numbers a topic has given out; none without the topic."""
        query = select(_counter(kind)).where(all_topics.c.topicid == topic_id)
        with self._transaction() as connection:
            number: int | None = connection.execute(query).scalar()
        return number

    def tokens(self) -> list[TokenRecord]:
        """All tokens in the order they were made."""
        query = select(all_tokens).order_by(all_tokens.c.created_us, all_tokens.c.tokenid)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return [_token(row) for row in rows]

    def add_token(self, token: TokenRecord) -> None:
        """Let someone in."""
        values = {"tokenid": token.id, "name": token.name, "secret_hash": token.secret_hash}
        grants = msgspec.json.encode(token.grants).decode()
        with self._transaction() as connection:
            connection.execute(insert(all_tokens).values(grants=grants, created_us=token.created_us, **values))

    def remove_token(self, token_id: str) -> bool:
        """Let someone in no more; whether there was such a token."""
        with self._transaction() as connection:
            return connection.execute(delete(all_tokens).where(all_tokens.c.tokenid == token_id)).rowcount > 0

    def close(self) -> None:
        """Close all connections; the engine would open new ones, so nothing more is let in."""
        with self._lock:
            self._closed = True
            self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._lock:
            if self._closed:
                raise Closed("the store")
            try:
                with self._engine.begin() as connection:
                    yield connection
            except DBAPIError as error:
                raise StoreUnavailable(self._name, str(error.orig)) from error


def _put_offsets(connection: Connection, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
    if not offsets:
        return
    rows = [
        {"topicid": topic_id, "groupname": group, "partition": partition, "queueoffset": offset}
        for partition, offset in offsets.items()
    ]
    connection.execute(_OFFSETS, rows)


def _make_offsets() -> Any:
    """The statement that stores committed offsets, made once: they change more often than all else."""
    row = upsert(all_consumers)
    keys = ["topicid", "groupname", "partition"]
    return row.on_conflict_do_update(index_elements=keys, set_={"queueoffset": row.excluded.queueoffset})


_OFFSETS = _make_offsets()


def _topic(row: Any) -> TopicRecord:
    settings = msgspec.json.decode(row.settings, type=TopicSettings)
    return TopicRecord(row.topicid, row.topicname, row.topickey, row.partitions, settings, row.created_us)


def _group(row: Any) -> Group:
    read_from: ReadFrom = msgspec.json.decode(row.read_from, type=ReadFrom)
    return Group(row.groupname, row.consumers, row.important, read_from, row.generation)


def _token(row: Any) -> TokenRecord:
    grants = msgspec.json.decode(row.grants, type=tuple[Grant, ...])
    return TokenRecord(row.tokenid, row.name, row.secret_hash, grants, row.created_us)


def _counter(kind: Kind) -> Any:
    return all_topics.c.consumers if kind == "consumer" else all_topics.c.producers

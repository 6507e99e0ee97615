"""The catalog: topics, groups and committed offsets in SQL, with the same code for every engine.

Its other rows have a module each, and are attributes here: servers, pipelines, tokens, the archive's manifest, and
commits of several topics. Every method is one transaction, durable when it returns (`transactions.py`). Thread-safe.

In a store that one server owns, the broker knows its groups and writes what they become. In a shared store,
`change_group` changes a group under the lock of its row.

A transaction whose connection broke, or whose COMMIT got no answer, is retried for a while: everything here is safe to
do twice; at worst a number of the queue API is skipped. The answer may be that of the second attempt: the topic or
token already existed, or no longer did, and no offset was raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine, and_, delete, func, insert, literal, select, text, tuple_, update
from sqlalchemy.exc import IntegrityError

from headrace.core.errors import TopicDeleted, TopicExists
from headrace.core.groups.group import Group
from headrace.core.groups.notes import CommitNote
from headrace.core.ids import Kind
from headrace.core.topics.retention import check_read, raised_by
from headrace.core.topics.settings import TopicSettings
from headrace.storage.archive.manifest import Manifest
from headrace.storage.commits.store_commits import CatalogChange, StoreCommits
from headrace.storage.group_row import (
    KEYS,
    NO_MEMBERS,
    VALUES,
    GroupRow,
    Reach,
    TopicGone,
    advance,
    database_us,
    find_shared,
    find_standing,
    group_of,
    groups_query,
    highest_offsets,
    important_offsets,
    note_of,
    raise_offsets,
    write_groups,
)
from headrace.storage.group_row import GroupWrite as GroupWrite
from headrace.storage.pipelines import Pipelines
from headrace.storage.servers import ServerRows
from headrace.storage.tables import (
    all_consumers,
    all_groups,
    all_members,
    all_producers,
    all_queue_consumers,
    all_topics,
    check_tables,
    create_tables,
)
from headrace.storage.tokens import TokenRows
from headrace.storage.transactions import PATIENCE_SECONDS, Result, Transactions

# Engines bound what one statement may name.
_NAMES_IN_QUERY: Final = 1_000


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as stored."""

    id: int
    name: str
    key: str
    partitions: int
    settings: TopicSettings
    created_us: int
    # By partition the offset below which messages were deleted on request; missing ones are 0.
    deleted_before: tuple[int, ...] = ()


# The next offset to read by group and partition, and what was said with it.
GroupOffsets = Mapping[tuple[str, int], tuple[int, CommitNote | None]]

# Created at import: two threads that are the first to decode a type crash msgspec 0.22.
_SETTINGS: Final = msgspec.json.Decoder(TopicSettings)
_OFFSETS: Final = msgspec.json.Decoder(tuple[int, ...])
_SHARED_LOCK_MILLISECONDS: Final = 100


class Catalog:
    """The catalog over a database. Thread-safe."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        patience_seconds: float = PATIENCE_SECONDS,
        reason_of: Callable[[BaseException], str] = str,
        make_tables: bool = True,
    ) -> None:
        """`name` is the store's, for errors; `reason_of` describes an error in words that may be shown.

        Without `make_tables` nothing is created or upgraded: a store that does not exist, or is older, is refused.
        """
        self._transactions = Transactions(engine, name, patience_seconds, reason_of)
        self._do = self._transactions.do
        self._upsert = self._transactions.upsert
        self.is_postgres = self._transactions.is_postgres
        self.servers = ServerRows(self._transactions)
        self.pipelines = Pipelines(self._transactions)
        self.manifest = Manifest(self._transactions)
        self.tokens = TokenRows(self._transactions)
        self.commits = StoreCommits(self._transactions)
        self._do(lambda connection: (create_tables if make_tables else check_tables)(connection, name))

    # Topics

    def topics(self) -> list[TopicRecord]:
        """All topics in the order of creation."""
        rows = self._do(lambda connection: connection.execute(select(all_topics).order_by(all_topics.c.topicid)).all())
        return [_topic(row) for row in rows]

    def topic(self, key: str) -> TopicRecord | None:
        """The topic of a key, or None."""
        query = select(all_topics).where(all_topics.c.topickey == key)
        row = self._do(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _topic(row)

    def last_topic_id(self) -> int:
        """The highest id that a topic ever had: ids are never given again."""
        if self.is_postgres:
            query = "SELECT pg_sequence_last_value(pg_get_serial_sequence('all_topics', 'topicid')::regclass)"
        else:
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'all_topics'"
        last: int | None = self._do(lambda connection: connection.execute(text(query)).scalar())
        return last or 0

    def was_deleted(self, topic_id: int) -> bool:
        """Whether there was a topic with this id; one that is above all ids was never in this catalog."""
        return topic_id <= self.last_topic_id() and all(topic.id != topic_id for topic in self.topics())

    def add_topic(
        self,
        name: str,
        key: str,
        partitions: int,
        settings: TopicSettings,
        now_us: int,
        prepare: Callable[[TopicRecord], None],
    ) -> TopicRecord:
        """Add a topic; `prepare` creates its log before the row is committed, so that every topic has one."""
        values = {"topickey": key, "topicname": name, "partitions": partitions, "created_us": now_us}
        row = insert(all_topics).values(settings=msgspec.json.encode(settings).decode(), **values)

        def add(connection: Connection) -> TopicRecord:
            try:
                topic_id = connection.execute(row).inserted_primary_key
            except IntegrityError:
                raise TopicExists(name) from None
            assert topic_id is not None
            record = TopicRecord(topic_id[0], name, key, partitions, settings, now_us)
            prepare(record)
            return record

        return self._do(add)

    def change_topic(self, topic: TopicRecord, rule: Callable[[TopicRecord], TopicRecord]) -> TopicRecord:
        """Store the partitions and settings that a function derives from the current ones."""

        def change(connection: Connection) -> TopicRecord:
            before = _lock_topic(connection, topic)
            after = rule(before)
            if after != before:
                settings = msgspec.json.encode(after.settings).decode()
                statement = update(all_topics).where(all_topics.c.topicid == topic.id)
                connection.execute(statement.values(partitions=after.partitions, settings=settings))
            return after

        return self._do(change)

    def delete_before(self, topic: TopicRecord, offsets: Mapping[int, int]) -> TopicRecord:
        """Store that the messages of partitions below these offsets are deleted; offsets only rise.

        Refused if an important group has not read them. Groups are looked up under the lock of the topic's row.
        """

        def raise_(connection: Connection) -> TopicRecord:
            before = _lock_topic(connection, topic)
            check_read(topic.name, offsets, important_offsets(connection, topic.id))
            after = raised_by(before.deleted_before, offsets)
            statement = update(all_topics).where(all_topics.c.topicid == topic.id)
            connection.execute(statement.values(deleted_before=msgspec.json.encode(after).decode()))
            return replace(before, deleted_before=after)

        return self._do(raise_)

    def remove_topic(self, topic_id: int) -> bool:
        """Delete a topic with its groups and offsets; returns whether it existed."""

        def remove(connection: Connection) -> bool:
            removed = connection.execute(delete(all_topics).where(all_topics.c.topicid == topic_id)).rowcount
            return removed > 0

        return self._do(remove)

    # Groups

    def groups(self, topic_id: int) -> list[Group]:
        """The groups of a topic by name, with their stored members."""
        return sorted(self.groups_by_topic(topic_id).get(topic_id, []), key=lambda group: group.name)

    def groups_by_topic(self, *topic_ids: int) -> dict[int, list[Group]]:
        """The same by topic, in no order, of all topics if none is named."""
        query = groups_query(*([all_groups.c.topicid.in_(topic_ids)] if topic_ids else []))
        found: dict[int, list[Group]] = {}
        for row in self._do(lambda connection: connection.execute(query).all()):
            found.setdefault(row.topicid, []).append(group_of(row))
        return found

    def group(self, topic_id: int, name: str) -> Group | None:
        """A group with its stored members, or None."""
        query = groups_query(all_groups.c.topicid == topic_id, all_groups.c.groupname == name)
        row = self._do(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else group_of(row)

    def named_groups(self, names: Collection[str] | None) -> list[tuple[int, str]]:
        """The topic and name of every group that has one of the names, or any: by name, topics as they were created."""
        columns, wanted = all_groups.c, sorted(names or ())
        queries = [select(columns.topicid, columns.groupname)]
        if names is not None:
            parts = [wanted[first : first + _NAMES_IN_QUERY] for first in range(0, len(wanted), _NAMES_IN_QUERY)]
            queries = [queries[0].where(columns.groupname.in_(part)) for part in parts]
        rows = self._do(lambda connection: [row for query in queries for row in connection.execute(query)])
        return sorted(((row.topicid, row.groupname) for row in rows), key=lambda row: row[::-1])

    def database_us(self) -> int:
        """The time of the database, on which the servers of a shared store agree."""
        return self._do(database_us)

    def groups_with_members(self) -> list[tuple[int, Group]]:
        """The topic of every group that has members, and the group."""
        query = groups_query(all_members.c.members != NO_MEMBERS)
        rows = self._do(lambda connection: connection.execute(query).all())
        return [(row.topicid, group_of(row)) for row in rows]

    def change_group(self, topic: TopicRecord, name: str, reach: Reach, work: Callable[[GroupRow], Result]) -> Result:
        """Change a group of a shared store under the lock of its row."""
        try:
            return self._do(lambda connection: work(GroupRow(connection, topic.id, name, reach)))
        except TopicGone:
            raise TopicDeleted(topic.name) from None

    def raise_offsets(
        self, topic_id: int, groups: Sequence[str], decide: Callable[[Mapping[str, Group]], GroupOffsets]
    ) -> None:
        """Raise offsets of several groups of a shared store at once, without a retry.

        The decision gets those of the groups that exist and are not locked.
        """

        def raise_(connection: Connection) -> None:
            # A locked offset of one group must not block those of others.
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SHARED_LOCK_MILLISECONDS}")
            offsets = decide(find_shared(connection, topic_id, groups))
            if offsets:
                raise_offsets(connection, topic_id, offsets)

        self._do(raise_, patience_seconds=0)

    def standing(self, topic_id: int, name: str) -> tuple[Group, dict[int, int]] | None:
        """A group of a shared store with its committed offsets, in one query; None if it does not exist."""
        return self._do(lambda connection: find_standing(connection, topic_id, name))

    def advance(
        self, topic_id: int, name: str, committed: Mapping[int, int], partition: int, moved: list[bool]
    ) -> None:
        """Move a group of a shared store past one message, if its offsets are still the given ones.

        `moved` gets an entry for each attempt: after a lost answer the second attempt finds other offsets.
        """
        self._do(lambda connection: moved.append(advance(connection, topic_id, name, committed, partition)))

    def write_groups(self, writes: Sequence[GroupWrite]) -> None:
        """Store changes of different groups, of any topics, in one transaction."""
        self._do(self.storing(writes))

    def storing(self, writes: Sequence[GroupWrite]) -> CatalogChange:
        """The same as a part of another transaction."""
        return lambda connection: write_groups(connection, self._upsert, writes)

    def changing(self, topic: TopicRecord, name: str, work: Callable[[GroupRow], object]) -> CatalogChange:
        """A commit of offsets of a group of a shared store as a part of another transaction, which may be repeated."""

        def change(connection: Connection) -> None:
            try:
                work(GroupRow(connection, topic.id, name, "offsets"))
            except TopicGone:
                raise TopicDeleted(topic.name) from None

        return change

    def offsets(self, topic_id: int, group: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        columns = all_consumers.c
        query = select(columns.partition, columns.queueoffset).where(
            columns.topicid == topic_id, columns.groupname == group
        )
        rows = self._do(lambda connection: connection.execute(query).all())
        return {row.partition: row.queueoffset for row in rows}

    def noted(self, topic_id: int, group: str) -> dict[int, tuple[int, CommitNote | None]]:
        """The same, with what was said with each commit."""
        columns = all_consumers.c
        query = select(columns.partition, *(columns[name] for name in VALUES)).where(
            columns.topicid == topic_id, columns.groupname == group
        )
        rows = self._do(lambda connection: connection.execute(query).all())
        return {row.partition: (row.queueoffset, note_of(row)) for row in rows}

    def note_lengths(self, topic_id: int, group: str) -> dict[int, int]:
        """The bytes of metadata of each commit of a group that has any."""
        columns = all_consumers.c
        query = select(columns.partition, func.length(columns.metadata)).where(
            columns.topicid == topic_id, columns.groupname == group, columns.metadata.is_not(None)
        )
        rows = self._do(lambda connection: connection.execute(query).all())
        return {partition: length for partition, length in rows if length}

    def note_sizes(self, topic_id: int, above: int) -> dict[str, int]:
        """The same of all groups of a topic that have more than this together, by group."""
        columns = all_consumers.c
        size = func.sum(func.length(columns.metadata))
        query = select(columns.groupname, size).where(columns.topicid == topic_id, columns.metadata.is_not(None))
        query = query.group_by(columns.groupname).having(size > above)
        rows = self._do(lambda connection: connection.execute(query).all())
        return {name: int(found) for name, found in rows}

    def all_offsets(self, topic_id: int) -> dict[str, dict[int, int]]:
        """The same for every group of a topic, those without committed offsets included."""
        consumers, groups = all_consumers.c, all_groups.c
        is_same = and_(consumers.topicid == groups.topicid, consumers.groupname == groups.groupname)
        query = (
            select(groups.groupname, consumers.partition, consumers.queueoffset)
            .select_from(all_groups.outerjoin(all_consumers, is_same))
            .where(groups.topicid == topic_id)
        )
        found: dict[str, dict[int, int]] = {}
        for name, partition, offset in self._do(lambda connection: connection.execute(query).all()):
            offsets = found.setdefault(name, {})
            if partition is not None:
                offsets[partition] = offset
        return found

    def highest_offsets(self, topic_id: int | None = None) -> dict[int, dict[int, int]]:
        """By topic, all or one, and partition the highest offset that a group has committed."""
        return self._do(lambda connection: highest_offsets(connection, topic_id))

    # The queue API, producers

    def take_number(self, topic_id: int, kind: Kind) -> int | None:
        """The next number of a consumer or producer of the queue API, from 1; None if the topic does not exist."""
        column = _counter(kind)
        step = update(all_topics).where(all_topics.c.topicid == topic_id).values({column: column + 1})
        return self._number(step.returning(column))

    def numbers_given(self, topic_id: int, kind: Kind) -> int | None:
        """How many such numbers a topic has given out; None if the topic does not exist."""
        return self._number(select(_counter(kind)).where(all_topics.c.topicid == topic_id))

    def _number(self, statement: Any) -> int | None:
        number: int | None = self._do(lambda connection: connection.execute(statement).scalar())
        return number

    def see_consumer(self, topic_id: int, group: str, now_us: int) -> None:
        """Record that a consumer of the queue API was active."""
        row = self._upsert(all_queue_consumers).values(topicid=topic_id, groupname=group, seen_us=now_us)
        row = row.on_conflict_do_update(index_elements=KEYS, set_={"seen_us": now_us})
        self._do(lambda connection: connection.execute(row))

    def forget_consumers(self, prefix: str, idle_since_us: int, now_us: int) -> list[tuple[int, str]]:
        """Topic and group of each consumer of the queue API that was inactive since; their records are deleted.

        Groups with this prefix that have no record count as active now.
        """
        groups, columns = all_groups.c, all_queue_consumers.c
        unknown = select(groups.topicid, groups.groupname, literal(now_us)).where(groups.groupname.startswith(prefix))
        adopt = self._upsert(all_queue_consumers).from_select([*KEYS, "seen_us"], unknown).on_conflict_do_nothing()
        idle = delete(all_queue_consumers).where(columns.seen_us <= idle_since_us)

        def forget(connection: Connection) -> list[tuple[int, str]]:
            connection.execute(adopt)
            rows = connection.execute(idle.returning(columns.topicid, columns.groupname)).all()
            return [(row.topicid, row.groupname) for row in rows]

        return self._do(forget)

    def forget_producers(self, producers_max: int) -> int:
        """Delete the producers of a topic beyond a maximum, those opened longest ago first; returns how many."""
        rank = func.row_number().over(partition_by=all_producers.c.topicid, order_by=all_producers.c.epoch.desc())
        ranked = select(all_producers.c.topicid, all_producers.c.sourcehash, rank.label("place")).subquery()
        old = select(ranked.c.topicid, ranked.c.sourcehash).where(ranked.c.place > producers_max)
        doomed = tuple_(all_producers.c.topicid, all_producers.c.sourcehash).in_(old)
        return self._do(lambda connection: connection.execute(delete(all_producers).where(doomed)).rowcount)

    def close(self) -> None:
        """Close all connections; later calls are refused."""
        self._transactions.close()


def _topic(row: Any) -> TopicRecord:
    settings = _SETTINGS.decode(row.settings)
    deleted_before = _OFFSETS.decode(row.deleted_before)
    named = (row.topicid, row.topicname, row.topickey)
    return TopicRecord(*named, row.partitions, settings, row.created_us, deleted_before)


def _lock_topic(connection: Connection, topic: TopicRecord) -> TopicRecord:
    """The topic as it is now, its row locked until the transaction ends."""
    query = select(all_topics).where(all_topics.c.topicid == topic.id).with_for_update(key_share=True)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise TopicDeleted(topic.name)
    return _topic(row)


def _counter(kind: Kind) -> Any:
    return all_topics.c.consumers if kind == "consumer" else all_topics.c.producers

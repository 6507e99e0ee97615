"""The catalog: which topics, groups and committed offsets there are, in SQL, the same code for every engine.

Every method is one transaction, durable when it returns. On SQLite a lock orders the calls of this process, so that
the one in-memory connection of the memory engine can serve many threads too; on PostgreSQL the database orders them.
An unknown newer version of the tables is refused.

In a store of one server groups come and go without their members: those live in the broker that they talk to. In one
that servers share, `change_group` changes a group with its members under the lock of its row.

A transaction whose connection broke is tried again for a while. So is one whose COMMIT had no answer: everything here
may be done twice without harm to what is stored, at worst a number of the queue API is left out. What is said may be
that of the second time: a topic or a token was there, or was not, and no offset was raised.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    Insert,
    and_,
    delete,
    func,
    insert,
    inspect,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateColumn

from headrace.core.errors import Closed, StoreUnavailable, TopicDeleted, TopicExists, UnknownFormat
from headrace.core.groups.group import Group
from headrace.core.ids import Kind
from headrace.core.limits import STOP_SECONDS
from headrace.core.rights import Grant
from headrace.core.settings import TopicSettings
from headrace.storage.group_row import (
    KEYS,
    GroupRow,
    Reach,
    TopicGone,
    advance,
    database_us,
    find_shared,
    find_standing,
    group_of,
    group_values,
    groups_query,
    raise_offsets,
)
from headrace.storage.pipelines import Pipelines
from headrace.storage.servers import Servers
from headrace.storage.tables import (
    ADDED_COLUMNS,
    VERSION,
    all_consumers,
    all_groups,
    all_members,
    all_producers,
    all_queue_consumers,
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
    expires_us: int | None = None
    used_us: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic as the catalog has it."""

    id: int
    name: str
    key: str
    partitions: int
    settings: TopicSettings
    created_us: int


Result = TypeVar("Result")
# The next offset to read by group and partition.
GroupOffsets = Mapping[tuple[str, int], int]

# How long a transaction is tried again after its connection broke, and how long is waited before each.
_PATIENCE_SECONDS: Final = 10.0
_SHORT_PATIENCE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1
_SHARED_LOCK_MILLISECONDS: Final = 100
# The SQLSTATEs of what may pass: the connection broke (08), the server stops or starts (57P0), two met (40).
_PASSING: Final = ("08", "57P0", "40")


class Catalog:
    """The catalog over a database. Safe for threads."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        patience_seconds: float = _PATIENCE_SECONDS,
        reason_of: Callable[[BaseException], str] = str,
        make_tables: bool = True,
    ) -> None:
        """`reason_of` says what went wrong in words that may be shown.

        Without `make_tables` nothing is made or upgraded: a store that is not there, or is older, is refused.
        """
        self._engine = engine
        self._reason_of = reason_of
        self._name = name
        self._patience_seconds = patience_seconds
        self._is_postgres = engine.dialect.name == "postgresql"
        self._upsert: Any = postgresql.insert if self._is_postgres else sqlite.insert
        self._lock: AbstractContextManager[object] = nullcontext() if self._is_postgres else threading.Lock()
        self._idle = threading.Condition()
        self._at_work = 0
        self._closed = False
        # Made once: offsets change more often than all else.
        row = self._upsert(all_consumers)
        self._offsets_statement = row.on_conflict_do_update(
            index_elements=[*KEYS, "partition"], set_={"queueoffset": row.excluded.queueoffset}
        )
        self.servers = Servers(self._do)
        self.pipelines = Pipelines(self._do, self._upsert)
        self._do(self._make_tables if make_tables else self._check_tables)

    def _make_tables(self, connection: Connection) -> None:
        metadata.create_all(connection)
        version = connection.execute(select(headrace_catalog.c.version)).scalar()
        if version is None:
            connection.execute(insert(headrace_catalog).values(version=VERSION))
        elif version > VERSION:
            raise UnknownFormat(self._name, version, VERSION)
        elif version < VERSION:
            self._upgrade(connection)

    def _upgrade(self, connection: Connection) -> None:
        """Add what tables of an earlier version lack; whoever has them open goes on with what it knows."""
        for column in ADDED_COLUMNS:
            known = {found["name"] for found in inspect(connection).get_columns(column.table.name)}
            if column.name not in known:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}")
        connection.execute(update(headrace_catalog).values(version=VERSION))

    def _check_tables(self, connection: Connection) -> None:
        has_version = inspect(connection).has_table(headrace_catalog.name)
        version = connection.execute(select(headrace_catalog.c.version)).scalar() if has_version else None
        if version is None:
            raise StoreUnavailable(self._name, "there is no store here: `headrace serve` makes one")
        if version < VERSION:
            raise StoreUnavailable(self._name, "an earlier version made it: start this version's server once")
        if version > VERSION:
            raise UnknownFormat(self._name, version, VERSION)

    # Topics

    def topics(self) -> list[TopicRecord]:
        """All topics in the order they were made."""
        rows = self._do(lambda connection: connection.execute(select(all_topics).order_by(all_topics.c.topicid)).all())
        return [_topic(row) for row in rows]

    def topic(self, key: str) -> TopicRecord | None:
        """The topic of a key, or none."""
        query = select(all_topics).where(all_topics.c.topickey == key)
        row = self._do(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _topic(row)

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
        """Store other partitions or settings, which a rule makes of those that the topic has by now."""

        def change(connection: Connection) -> TopicRecord:
            query = select(all_topics).where(all_topics.c.topicid == topic.id).with_for_update(key_share=True)
            row = connection.execute(query).one_or_none()
            if row is None:
                raise TopicDeleted(topic.name)
            before = _topic(row)
            after = rule(before)
            if after != before:
                settings = msgspec.json.encode(after.settings).decode()
                statement = update(all_topics).where(all_topics.c.topicid == topic.id)
                connection.execute(statement.values(partitions=after.partitions, settings=settings))
            return after

        return self._do(change)

    def remove_topic(self, topic_id: int) -> bool:
        """Remove a topic with its groups and offsets; whether it was there."""

        def remove(connection: Connection) -> bool:
            removed = connection.execute(delete(all_topics).where(all_topics.c.topicid == topic_id)).rowcount
            return removed > 0

        return self._do(remove)

    # Groups

    def groups(self, topic_id: int) -> list[Group]:
        """The groups of a topic by name, with the members that are stored."""
        rows = self._do(lambda connection: connection.execute(groups_query(topic_id)).all())
        return sorted((group_of(row) for row in rows), key=lambda group: group.name)

    def group(self, topic_id: int, name: str) -> Group | None:
        """A group with the members that are stored, or none."""
        query = groups_query(topic_id).where(all_groups.c.groupname == name)
        row = self._do(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else group_of(row)

    def database_us(self) -> int:
        """The time by the clock of the database that servers share."""
        return self._do(database_us)

    def silent_groups(self, now_us: int) -> list[tuple[int, str]]:
        """The topic and name of every group with a member whose session has run out by now."""
        columns = all_members.c
        query = select(columns.topicid, columns.groupname).where(columns.first_deadline_us <= now_us)
        return [(row.topicid, row.groupname) for row in self._do(lambda connection: connection.execute(query).all())]

    def change_group(self, topic: TopicRecord, name: str, reach: Reach, work: Callable[[GroupRow], Result]) -> Result:
        """Do work on a group of a shared store that nobody else changes meanwhile."""
        try:
            return self._do(lambda connection: work(GroupRow(connection, topic.id, name, reach)))
        except TopicGone:
            raise TopicDeleted(topic.name) from None

    def raise_offsets(
        self, topic_id: int, groups: Sequence[str], decide: Callable[[Mapping[str, Group], int], GroupOffsets]
    ) -> None:
        """Raise offsets of several groups of a shared store at once, without a second try.

        What is raised is decided of the database's time and of those groups that are there and that nobody is changing.
        """

        def raise_(connection: Connection) -> None:
            # An offset that somebody holds locked must not hold up those of other groups.
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SHARED_LOCK_MILLISECONDS}")
            offsets = decide(*find_shared(connection, topic_id, groups))
            if offsets:
                raise_offsets(connection, topic_id, offsets)

        self._do(raise_, patience_seconds=0)

    def standing(self, topic_id: int, name: str) -> tuple[Group, dict[int, int]] | None:
        """A group of a shared store with its committed offsets, in one look; none if it does not exist."""
        return self._do(lambda connection: find_standing(connection, topic_id, name))

    def advance(
        self, topic_id: int, name: str, committed: Mapping[int, int], partition: int, moved: list[bool]
    ) -> None:
        """Move a group of a shared store past one message, if its offsets are still the given ones.

        `moved` gets a line for each try: after a lost answer a second try says that the offsets are others by now.
        """
        self._do(lambda connection: moved.append(advance(connection, topic_id, name, committed, partition)))

    def put_group(self, topic_id: int, group: Group, offsets: Mapping[int, int] | None = None) -> None:
        """Store a group, new or changed, without its members, and offsets to begin with."""
        values = group_values(group)
        row = self._upsert(all_groups).values(topicid=topic_id, groupname=group.name, **values)
        row = row.on_conflict_do_update(index_elements=KEYS, set_=values)

        def put(connection: Connection) -> None:
            connection.execute(row)
            self._put_offsets(connection, topic_id, group.name, offsets or {})

        self._do(put)

    def remove_group(self, topic_id: int, group: str) -> None:
        """Remove a group with its offsets."""

        def remove(connection: Connection) -> None:
            for table in (all_consumers, all_groups):
                connection.execute(delete(table).where(table.c.topicid == topic_id, table.c.groupname == group))

        self._do(remove)

    def offsets(self, topic_id: int, group: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        columns = all_consumers.c
        query = select(columns.partition, columns.queueoffset).where(
            columns.topicid == topic_id, columns.groupname == group
        )
        rows = self._do(lambda connection: connection.execute(query).all())
        return {row.partition: row.queueoffset for row in rows}

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

    def highest_offsets(self, topic_id: int) -> dict[int, int]:
        """By partition the highest offset that a group of a topic has committed."""
        columns = all_consumers.c
        query = select(columns.partition, func.max(columns.queueoffset)).where(columns.topicid == topic_id)
        rows = self._do(lambda connection: connection.execute(query.group_by(columns.partition)).all())
        return {row[0]: row[1] for row in rows}

    def put_offsets(self, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        """Store committed offsets."""
        self._do(lambda connection: self._put_offsets(connection, topic_id, group, offsets))

    def _put_offsets(self, connection: Connection, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        if not offsets:
            return
        rows = [
            {"topicid": topic_id, "groupname": group, "partition": partition, "queueoffset": offset}
            for partition, offset in offsets.items()
        ]
        connection.execute(self._offsets_statement, rows)

    # The queue API, producers, tokens

    def take_number(self, topic_id: int, kind: Kind) -> int | None:
        """The next number of a consumer or producer of the queue API, counted from 1; none without the topic."""
        column = _counter(kind)
        step = update(all_topics).where(all_topics.c.topicid == topic_id).values({column: column + 1})
        return self._number(step.returning(column))

    def numbers_given(self, topic_id: int, kind: Kind) -> int | None:
        """How many such numbers a topic has given out; none without the topic."""
        return self._number(select(_counter(kind)).where(all_topics.c.topicid == topic_id))

    def _number(self, statement: Any) -> int | None:
        number: int | None = self._do(lambda connection: connection.execute(statement).scalar())
        return number

    def see_consumer(self, topic_id: int, group: str, now_us: int) -> None:
        """Note that a consumer of the queue API was here."""
        row = self._upsert(all_queue_consumers).values(topicid=topic_id, groupname=group, seen_us=now_us)
        row = row.on_conflict_do_update(index_elements=KEYS, set_={"seen_us": now_us})
        self._do(lambda connection: connection.execute(row))

    def forget_consumers(self, prefix: str, idle_since_us: int, now_us: int) -> list[tuple[int, str]]:
        """Topic and group of each consumer of the queue API that was not seen since; they are not noted any more.

        Groups with this prefix of which nothing was noted count as seen now.
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
        """Above so many producers of a topic forget those that were opened longest ago; how many."""
        rank = func.row_number().over(partition_by=all_producers.c.topicid, order_by=all_producers.c.epoch.desc())
        ranked = select(all_producers.c.topicid, all_producers.c.sourcehash, rank.label("place")).subquery()
        old = select(ranked.c.topicid, ranked.c.sourcehash).where(ranked.c.place > producers_max)
        doomed = tuple_(all_producers.c.topicid, all_producers.c.sourcehash).in_(old)
        return self._do(lambda connection: connection.execute(delete(all_producers).where(doomed)).rowcount)

    def tokens(self) -> list[TokenRecord]:
        """All tokens in the order they were made."""
        query = select(all_tokens).order_by(all_tokens.c.created_us, all_tokens.c.tokenid)
        # An event loop asks, which must not be held up for long.
        rows = self._do(lambda connection: connection.execute(query).all(), _SHORT_PATIENCE_SECONDS)
        return [_token(row) for row in rows]

    def add_token(self, token: TokenRecord) -> None:
        """Let someone in."""
        self._do(lambda connection: connection.execute(_token_row(token)))

    def replace_tokens(self, token: TokenRecord, expires_us: Mapping[str, int]) -> None:
        """Let someone in, and give other tokens an end, in one step."""

        def replace(connection: Connection) -> None:
            for token_id, end_us in expires_us.items():
                statement = update(all_tokens).where(all_tokens.c.tokenid == token_id)
                connection.execute(statement.values(expires_us=end_us))
            connection.execute(_token_row(token))

        self._do(replace)

    def put_token_uses(self, used_us: Mapping[str, int]) -> None:
        """Store when tokens were last used; one that was used later elsewhere stays so."""

        def put(connection: Connection) -> None:
            for token_id, us in used_us.items():
                is_newer = or_(all_tokens.c.used_us.is_(None), all_tokens.c.used_us < us)
                statement = update(all_tokens).where(all_tokens.c.tokenid == token_id, is_newer)
                connection.execute(statement.values(used_us=us))

        self._do(put, _SHORT_PATIENCE_SECONDS)

    def remove_token(self, token_id: str) -> bool:
        """Let someone in no more; whether there was such a token."""
        statement = delete(all_tokens).where(all_tokens.c.tokenid == token_id)
        return self._do(lambda connection: connection.execute(statement).rowcount) > 0

    def close(self) -> None:
        """Close all connections; the engine would open new ones, so nothing more is let in.

        Work under way is waited for, but not longer than a stop may take.
        """
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._at_work, STOP_SECONDS)
        self._engine.dispose()

    def _do(self, work: Callable[[Connection], Result], patience_seconds: float = math.inf) -> Result:
        """Do work in one transaction, again if its connection broke, until that takes too long."""
        deadline = time.monotonic() + min(patience_seconds, self._patience_seconds)
        while True:
            try:
                with self._working(), self._lock, self._engine.begin() as connection:
                    return work(connection)
            except (DBAPIError, PoolTimeout) as error:
                cause = error.orig if isinstance(error, DBAPIError) else None
                reason = "all connections are in use" if cause is None else self._reason_of(cause)
                if not self._may_pass(error) or time.monotonic() >= deadline:
                    raise StoreUnavailable(self._name, reason) from error
                time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """As long as someone is at work the connections stay."""
        with self._idle:
            if self._closed:
                raise Closed("the store")
            self._at_work += 1
        try:
            yield
        finally:
            with self._idle:
                self._at_work -= 1
                self._idle.notify_all()

    def _may_pass(self, error: DBAPIError | PoolTimeout) -> bool:
        """Whether another connection may fare better: this one broke, was not let in, or ran into another."""
        if not self._is_postgres or isinstance(error, PoolTimeout):
            return False
        state = getattr(error.orig, "sqlstate", None)
        return error.connection_invalidated or (state or "08").startswith(_PASSING)


def _topic(row: Any) -> TopicRecord:
    settings = msgspec.json.decode(row.settings, type=TopicSettings)
    return TopicRecord(row.topicid, row.topicname, row.topickey, row.partitions, settings, row.created_us)


def _token(row: Any) -> TokenRecord:
    grants = msgspec.json.decode(row.grants, type=tuple[Grant, ...])
    times = (row.created_us, row.expires_us, row.used_us)
    return TokenRecord(row.tokenid, row.name, row.secret_hash, grants, *times)


def _token_row(token: TokenRecord) -> Insert:
    values = {"tokenid": token.id, "name": token.name, "secret_hash": token.secret_hash}
    times = {"created_us": token.created_us, "expires_us": token.expires_us, "used_us": token.used_us}
    grants = msgspec.json.encode(token.grants).decode()
    return insert(all_tokens).values(grants=grants, **times, **values)


def _counter(kind: Kind) -> Any:
    return all_topics.c.consumers if kind == "consumer" else all_topics.c.producers

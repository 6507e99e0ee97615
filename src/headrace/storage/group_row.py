"""One group of a shared store in a transaction that has locked it, so that servers change it one after another.

    rows locked: all_topics (shared, if the group may move back), all_groups with all_members, then all_consumers

The topic's row is locked first: retention holds it while it checks what important groups have not read. A group that
does not exist has no row to lock; a lock for its name replaces it. Offsets are written in the order of their
partitions, because two commits of one group may run concurrently. Not thread-safe; valid until its transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert

from headrace.core.groups.group import Group, ReadFrom
from headrace.core.groups.member import Member
from headrace.core.groups.notes import NO_NOTES, CommitNote
from headrace.core.limits import MICROSECONDS, SERVER_EXPIRY_SECONDS
from headrace.storage.tables import all_consumers, all_groups, all_members, all_topics, name_lock, take_lock

# What a change does to its group: commits offsets, concurrently with others; changes it; or may also move it back.
Reach = Literal["offsets", "group", "back"]

KEYS = ["topicid", "groupname"]
# What is stored of a commit.
VALUES: Final = ("queueoffset", "committed", "leader_epoch", "metadata")

# What is stored of a group without members.
NO_MEMBERS: Final = "{}"

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Member])
_READ_FROM: Final = msgspec.json.Decoder(ReadFrom)

# The time of the database, in microseconds since 1970, on which all servers agree.
DATABASE_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# As text, which is cheaper than building it, and one statement for any number of partitions: offsets change more often
# than anything else.
_FIND_GROUP: Final = """
SELECT groupname, consumers, important, read_from, generation, seek_generation, members
FROM all_groups JOIN all_members USING (topicid, groupname) WHERE topicid = %s AND groupname = %s"""
_INTO_CONSUMERS: Final = f"""
INSERT INTO all_consumers (topicid, groupname, "partition", {", ".join(VALUES)})"""
_VALUES: Final = "%s::integer[], %s::bigint[], %s::bigint[], %s::integer[], %s::bytea[]"
_REPLACED: Final = f"""
ON CONFLICT (topicid, groupname, "partition")
DO UPDATE SET ({", ".join(VALUES)}) = ({", ".join(f"excluded.{name}" for name in VALUES)})"""
_PUT_OFFSETS: Final = f"{_INTO_CONSUMERS} SELECT %s, %s, * FROM unnest({_VALUES}) {_REPLACED}"
# Clients of Kafka may say something else about the same offset.
_IF_ABOVE: Final = """
WHERE excluded.queueoffset > all_consumers.queueoffset
    OR (excluded.queueoffset = all_consumers.queueoffset AND excluded.committed IS NOT NULL
        AND (excluded.committed, excluded.leader_epoch, excluded.metadata)
            IS DISTINCT FROM (all_consumers.committed, all_consumers.leader_epoch, all_consumers.metadata))"""
# A group and its offsets in one snapshot, without a lock.
_FIND_STANDING: Final = """
SELECT groupname, consumers, important, read_from, generation, seek_generation, members,
    (SELECT array_agg(ARRAY["partition", queueoffset] ORDER BY "partition") FROM all_consumers AS stored
        WHERE stored.topicid = all_groups.topicid AND stored.groupname = all_groups.groupname) AS offsets
FROM all_groups JOIN all_members USING (topicid, groupname) WHERE topicid = %s AND groupname = %s"""
# One statement instead of a lock: if the offsets are not the expected ones, nothing is moved.
_ADVANCE: Final = """
UPDATE all_consumers SET queueoffset = queueoffset + 1, committed = NULL, leader_epoch = NULL, metadata = NULL
WHERE topicid = %s AND groupname = %s AND "partition" = %s AND queueoffset = %s AND (
    SELECT array_agg(queueoffset ORDER BY "partition") FROM all_consumers WHERE topicid = %s AND groupname = %s
) = %s::bigint[]"""
# Locked groups are skipped: one group must not block the others.
_FIND_GROUPS: Final = """
SELECT groupname, consumers, important, read_from, generation, seek_generation, members
FROM all_groups JOIN all_members USING (topicid, groupname) WHERE topicid = %s AND groupname = ANY(%s)
FOR SHARE SKIP LOCKED"""
_RAISE_OFFSETS: Final = f"{_INTO_CONSUMERS} SELECT %s, * FROM unnest(%s::text[], {_VALUES}) {_REPLACED} {_IF_ABOVE}"

# A server that was killed claims nothing any more.
_FIND_HOLDER: Final = f"""
SELECT serverid, kind FROM all_claims JOIN all_servers USING (serverid)
WHERE topicid = %s AND groupname = %s AND serverid <> %s AND heartbeat_us >= {DATABASE_US} - %s"""
_CLAIM: Final = """
INSERT INTO all_claims (topicid, groupname, serverid, kind) VALUES (%s, %s, %s, %s)
ON CONFLICT (topicid, groupname) DO UPDATE SET serverid = excluded.serverid, kind = excluded.kind
WHERE (all_claims.serverid, all_claims.kind) <> (excluded.serverid, excluded.kind)"""


class TopicGone(Exception):
    """The topic was deleted from the catalog."""


class GroupWrite(NamedTuple):
    """What is stored of a group that this server alone has: the group with its members, or offsets, or its end."""

    topic_id: int
    name: str
    group: Group | None = None
    offsets: Mapping[int, int] = MappingProxyType({})
    notes: Mapping[int, CommitNote] = NO_NOTES
    dropped: Sequence[int] = ()
    is_removed: bool = False


class GroupRow:
    """The group in this transaction, or None if it does not exist."""

    def __init__(self, connection: Connection, topic_id: int, name: str, reach: Reach) -> None:
        self._connection = connection
        self._key = {"topicid": topic_id, "groupname": name}
        if reach == "back":
            self._lock_topic(topic_id)
        self.group = self._locked(is_shared=reach == "offsets")
        if self.group is None:
            connection.exec_driver_sql(take_lock(name_lock(topic_id, name)))
            self.group = self._locked(is_shared=reach == "offsets")
            self._check_topic(topic_id)

    def put(self, group: Group, offsets: Mapping[int, int] | None = None) -> None:
        """Store the group, new or changed, with its members and initial offsets."""
        before, self.group = self.group, group
        if before is None or msgspec.structs.replace(before, members={}) != msgspec.structs.replace(group, members={}):
            self._upsert(all_groups, group_values(group))
        if before is None or before.members != group.members:
            self._upsert(all_members, member_values(group))
        self.put_offsets(offsets or {})

    def offsets(self) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        columns = all_consumers.c
        query = select(columns.partition, columns.queueoffset).where(*self._of(all_consumers))
        return {row.partition: row.queueoffset for row in self._connection.execute(query)}

    def put_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        """Store committed offsets, with what was said with them."""
        if offsets:
            self._write_offsets(_PUT_OFFSETS, offsets, notes)

    def raise_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> int:
        """Store those that are above the current ones, or say something else; returns how many were."""
        return self._write_offsets(f"{_PUT_OFFSETS} {_IF_ABOVE}", offsets, notes)

    def drop_offsets(self, partitions: Sequence[int]) -> None:
        """Forget the committed offsets of some partitions."""
        is_named = all_consumers.c.partition.in_(partitions)
        self._connection.execute(delete(all_consumers).where(*self._of(all_consumers), is_named))

    def holder(self, server_id: str) -> tuple[str, str] | None:
        """Which other server runs the group, and the kind of its members; None if none does."""
        values = (*self._key.values(), server_id, int(SERVER_EXPIRY_SECONDS * MICROSECONDS))
        row = self._connection.exec_driver_sql(_FIND_HOLDER, values).one_or_none()
        return None if row is None else (row.serverid, row.kind)

    def claim(self, server_id: str, kind: str) -> None:
        """Have this server run the group, in place of any other."""
        self._connection.exec_driver_sql(_CLAIM, (*self._key.values(), server_id, kind))

    def remove(self) -> None:
        """Remove the group with its members and offsets."""
        for table in (all_consumers, all_members, all_groups):
            self._connection.execute(delete(table).where(*self._of(table)))

    def _locked(self, is_shared: bool) -> Group | None:
        query = f"{_FIND_GROUP} FOR {'SHARE' if is_shared else 'UPDATE'}"
        row = self._connection.exec_driver_sql(query, tuple(self._key.values())).one_or_none()
        return None if row is None else group_of(row)

    def _lock_topic(self, topic_id: int) -> None:
        query = select(all_topics.c.topicid).where(all_topics.c.topicid == topic_id)
        self._connection.execute(query.with_for_update(read=True))

    def _check_topic(self, topic_id: int) -> None:
        """Keep an existing topic from being deleted until this transaction ends."""
        query = select(all_topics.c.topicid).where(all_topics.c.topicid == topic_id)
        if self._connection.execute(query.with_for_update(read=True, key_share=True)).scalar() is None:
            raise TopicGone

    def _of(self, table: Any) -> list[Any]:
        return [table.c[name] == value for name, value in self._key.items()]

    def _upsert(self, table: Any, values: dict[str, Any]) -> None:
        row = upsert(table).values(**self._key, **values)
        self._connection.execute(row.on_conflict_do_update(index_elements=KEYS, set_=values))

    def _write_offsets(self, statement: str, offsets: Mapping[int, int], notes: Mapping[int, CommitNote]) -> int:
        partitions = sorted(offsets)
        columns = _columns([(offsets[partition], notes.get(partition)) for partition in partitions])
        return self._connection.exec_driver_sql(statement, (*self._key.values(), partitions, *columns)).rowcount


def database_us(connection: Connection) -> int:
    """The database's time."""
    return int(connection.exec_driver_sql(f"SELECT {DATABASE_US}").scalar_one())


def find_shared(connection: Connection, topic_id: int, names: Sequence[str]) -> dict[str, Group]:
    """Some groups, locked until the transaction ends; those that others have locked are omitted."""
    rows = connection.exec_driver_sql(_FIND_GROUPS, (topic_id, list(names))).all()
    return {row.groupname: group_of(row) for row in rows}


def offset_values(offset: int, note: CommitNote | None) -> dict[str, Any]:
    """The stored columns of a commit."""
    return dict(zip(VALUES, (offset, *(note or (None, None, None))), strict=True))


def note_of(row: Any) -> CommitNote | None:
    """What was said with the commit of a row, if anything was."""
    return None if row.committed is None else CommitNote(row.committed, row.leader_epoch, row.metadata)


def _columns(commits: Sequence[tuple[int, CommitNote | None]]) -> Iterator[list[Any]]:
    rows = [offset_values(offset, note) for offset, note in commits]
    return ([row[name] for row in rows] for name in VALUES)


def raise_offsets(
    connection: Connection, topic_id: int, offsets: Mapping[tuple[str, int], tuple[int, CommitNote | None]]
) -> None:
    """Store offsets by group and partition where they are above the current ones, or say something else."""
    # Sorted, because other servers do the same: no deadlock.
    places = sorted(offsets)
    groups, partitions = [group for group, _ in places], [partition for _, partition in places]
    columns = _columns([offsets[place] for place in places])
    connection.exec_driver_sql(_RAISE_OFFSETS, (topic_id, groups, partitions, *columns))


def find_standing(connection: Connection, topic_id: int, name: str) -> tuple[Group, dict[int, int]] | None:
    """A group and its committed offsets in one snapshot; None if it does not exist."""
    row = connection.exec_driver_sql(_FIND_STANDING, (topic_id, name)).one_or_none()
    return None if row is None else (group_of(row), dict(row.offsets or ()))


def advance(connection: Connection, topic_id: int, name: str, committed: Mapping[int, int], partition: int) -> bool:
    """Move a group past one message, if all its offsets are still the given ones; returns whether it moved.

    Of two concurrent calls the second waits for the first, and finds another offset.
    """
    offsets = [committed[each] for each in sorted(committed)]
    parameters = (topic_id, name, partition, committed[partition], topic_id, name, offsets)
    return connection.exec_driver_sql(_ADVANCE, parameters).rowcount > 0


def group_values(group: Group) -> dict[str, Any]:
    """The stored columns of a group, without its name and members."""
    return {
        "consumers": group.consumers,
        "important": group.important,
        "read_from": msgspec.json.encode(group.read_from).decode(),
        "generation": group.generation,
        "seek_generation": group.seek_generation,
    }


def member_values(group: Group) -> dict[str, Any]:
    """The stored column of its members."""
    return {"members": msgspec.json.encode(group.members).decode()}


def group_of(row: Any) -> Group:
    """The group of a row, with its members if they are stored."""
    read_from: ReadFrom = _READ_FROM.decode(row.read_from)
    members = {} if row.members is None else _MEMBERS.decode(row.members)
    return Group(row.groupname, row.consumers, row.important, read_from, row.generation, members, row.seek_generation)


def _same_group() -> Any:
    return (all_groups.c.topicid == all_members.c.topicid) & (all_groups.c.groupname == all_members.c.groupname)


def groups_query(*where: Any) -> Any:
    """All groups, or some, with their members, in no order."""
    joined = all_groups.outerjoin(all_members, _same_group())
    return select(all_groups, all_members.c.members).select_from(joined).where(*where)


def highest_offsets(connection: Connection, topic_id: int | None) -> dict[int, dict[int, int]]:
    """By topic, all or one, and partition the highest offset that a group has committed."""
    topic, partition, offset = all_consumers.c.topicid, all_consumers.c.partition, all_consumers.c.queueoffset
    query = select(topic, partition, func.max(offset)).group_by(topic, partition)
    found: dict[int, dict[int, int]] = {}
    for row in connection.execute(query if topic_id is None else query.where(topic == topic_id)):
        found.setdefault(row[0], {})[row[1]] = row[2]
    return found


def important_offsets(connection: Connection, topic_id: int) -> dict[str, dict[int, int]]:
    """The committed offsets of every important group of a topic, by partition."""
    groups, consumers = all_groups.c, all_consumers.c
    names = select(groups.groupname).where(groups.topicid == topic_id, groups.important)
    found: dict[str, dict[int, int]] = {name: {} for name in connection.execute(names).scalars()}
    if found:
        query = select(consumers.groupname, consumers.partition, consumers.queueoffset)
        for name, partition, offset in connection.execute(query.where(consumers.topicid == topic_id)):
            if name in found:
                found[name][partition] = offset
    return found


def write_groups(connection: Connection, upsert: Any, writes: Sequence[GroupWrite]) -> None:
    """Store changes of different groups of a store of this server alone."""
    offsets: list[dict[str, Any]] = []
    for each in writes:
        key = {"topicid": each.topic_id, "groupname": each.name}
        if each.is_removed:
            for table in (all_consumers, all_members, all_groups):
                connection.execute(delete(table).where(*_has(table, key)))
        if each.group is not None:
            for table, values in ((all_groups, group_values(each.group)), (all_members, member_values(each.group))):
                row = upsert(table).values(**key, **values)
                connection.execute(row.on_conflict_do_update(index_elements=KEYS, set_=values))
        if each.dropped:
            is_dropped = all_consumers.c.partition.in_(each.dropped)
            connection.execute(delete(all_consumers).where(*_has(all_consumers, key), is_dropped))
        offsets += [
            {**key, "partition": partition, **offset_values(offset, each.notes.get(partition))}
            for partition, offset in each.offsets.items()
        ]
    if offsets:
        connection.execute(_offsets_statement(upsert), offsets)


@cache
def _offsets_statement(upsert: Any) -> Any:
    """Made once: offsets change more often than anything else."""
    row = upsert(all_consumers)
    return row.on_conflict_do_update(
        index_elements=[*KEYS, "partition"],
        set_={name: row.excluded[name] for name in VALUES},
        # Clients of Kafka repeat their last commit: nothing is written for it.
        where=or_(*(all_consumers.c[name].is_distinct_from(row.excluded[name]) for name in VALUES)),
    )


def _has(table: Any, key: Mapping[str, Any]) -> list[Any]:
    return [table.c[name] == value for name, value in key.items()]

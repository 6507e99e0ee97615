"""The manifest: which offsets of a topic are in which file of the archive, as rows of the catalog.

Every change is one transaction under the lock of the topic's row in `all_archives`, and raises its `version`. What a
server writes counts only if it still has the lease it began with (`epoch`); a store that is not shared has no leases,
and the epoch is always 0. A transaction that is repeated after a lost answer changes nothing the second time.
Thread-safe. docs/tables.md has the columns and their meaning.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange
from headrace.core.archive.plan import expired
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.storage.group_row import database_us, important_offsets
from headrace.storage.ranges import OffsetRange
from headrace.storage.tables import all_archive_files, all_archives, headrace_catalog
from headrace.storage.transactions import Transactions

_RANGES: Final = msgspec.json.Decoder(list[ArchiveRange])


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """The manifest of a topic: by partition the offset up to which it is complete, and the live files in order.

    cut_us: when the last file was cut, 0 before the first.
    """

    version: int
    ends: Int64s
    cut_us: int
    files: tuple[ArchiveFile, ...]


# Nothing was archived.
NO_MANIFEST: Final = TopicManifest(0, np.zeros(0, np.int64), 0, ())


class Manifest:
    """The manifests of all topics of a store."""

    def __init__(self, transactions: Transactions) -> None:
        self._do = transactions.do
        self._upsert = transactions.upsert

    def store_id(self) -> str:
        """The id of the store: its files are below a directory of this name."""

        def find(connection: Connection) -> str:
            known: str | None = connection.execute(select(headrace_catalog.c.storeid)).scalar()
            if known is None:
                statement = update(headrace_catalog).where(headrace_catalog.c.storeid.is_(None))
                connection.execute(statement.values(storeid=uuid.uuid4().hex))
                known = connection.execute(select(headrace_catalog.c.storeid)).scalar_one()
            return known

        return self._do(find)

    def ends(self) -> dict[int, Int64s]:
        """Of each topic that has a manifest, by partition the offset up to which it is complete."""
        query = select(all_archives.c.topicid, all_archives.c.ends)
        rows = self._do(lambda connection: connection.execute(query).all())
        return {row.topicid: _ends(row.ends) for row in rows}

    def load(self, topic_id: int, known: TopicManifest | None = None) -> TopicManifest | None:
        """The manifest of a topic, `known` itself if that is it, or None if nothing of it was ever archived."""
        state = select(all_archives).where(all_archives.c.topicid == topic_id)
        columns = all_archive_files.c
        live = select(all_archive_files).where(columns.topicid == topic_id, columns.removed_us.is_(None))

        def find(connection: Connection) -> TopicManifest | None:
            # With a lock, so that both are of one moment.
            row = connection.execute(state.with_for_update(read=True)).one_or_none()
            if row is None:
                return None
            if known is not None and known.version == row.version:
                return known
            files = tuple(_file(each) for each in connection.execute(live.order_by(columns.place)))
            return TopicManifest(row.version, _ends(row.ends), row.cut_us, files)

        return self._do(find)

    def claim(self, topic_id: int, holder: str | None, seconds: float) -> int | None:
        """Take or renew the lease of a topic; returns its epoch, or None if another server has it.

        Without a holder the store is not shared. The row of the topic is created if it does not exist.
        """

        def claim(connection: Connection) -> int | None:
            row = {"topicid": topic_id, "version": 0, "ends": "[]", "cut_us": 0, "epoch": 0, "until_us": 0}
            try:
                connection.execute(self._upsert(all_archives).values(row).on_conflict_do_nothing())
            except IntegrityError:
                # The topic was deleted.
                return None
            known = connection.execute(_locked(topic_id)).one()
            if holder is None:
                return int(known.epoch)
            now_us = database_us(connection)
            if known.holder not in (None, holder) and known.until_us > now_us:
                return None
            epoch = known.epoch + (known.holder != holder)
            until_us = now_us + int(seconds * MICROSECONDS)
            statement = update(all_archives).where(all_archives.c.topicid == topic_id)
            connection.execute(statement.values(holder=holder, epoch=epoch, until_us=until_us))
            return int(epoch)

        return self._do(claim)

    def append(
        self,
        topic_id: int,
        epoch: int,
        file: ArchiveFile,
        before: Int64s,
        now_us: int,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Add the next file of a topic, which begins at `before`, cut now; returns whether it counts.

        It does not if the lease was lost, the archive is not complete up to there, or it is no longer wanted. It is
        complete up to the ranges of the file then. `is_wanted` is asked under the lock of the topic's row: who deletes
        messages of the log, and removes files after that, either is seen by it or sees this file.
        """
        after = before.tolist() + [0] * (1 + max((each.partition for each in file.ranges), default=0) - len(before))
        for each in file.ranges:
            after[each.partition] = max(each.end_offset, after[each.partition])

        def append(connection: Connection) -> bool:
            known = connection.execute(_locked(topic_id)).one_or_none()
            if known is None or known.epoch != epoch:
                return False
            if _is_listed(connection, topic_id, file.path):
                return True
            if not _same(_ends(known.ends), before) or not is_wanted():
                return False
            connection.execute(_row(topic_id, file, int(before.sum()), now_us))
            _change(connection, known, ends=msgspec.json.encode(after).decode(), cut_us=now_us)
            return True

        return self._do(append)

    def replace(
        self, topic_id: int, epoch: int, files: Sequence[ArchiveFile], merged: ArchiveFile, now_us: int
    ) -> bool:
        """Replace consecutive live files by one; returns whether that counts.

        In a shared store they are removed by the database's clock, as they are swept: that of this server may be wrong.
        """
        paths = [file.path for file in files]
        columns = all_archive_files.c
        chosen = columns.topicid == topic_id, columns.path.in_(paths), columns.removed_us.is_(None)

        def replace(connection: Connection) -> bool:
            known = connection.execute(_locked(topic_id)).one_or_none()
            if known is None or known.epoch != epoch:
                return False
            if _is_listed(connection, topic_id, merged.path):
                return True
            count, place = connection.execute(select(func.count(), func.min(columns.place)).where(*chosen)).one()
            if count != len(paths):
                return False
            removed_us = now_us if known.holder is None else database_us(connection)
            connection.execute(update(all_archive_files).where(*chosen).values(removed_us=removed_us))
            connection.execute(_row(topic_id, merged, place, now_us))
            _change(connection, known)
            return True

        return self._do(replace)

    def expire(
        self,
        topic_id: int,
        retention_seconds: int | None,
        local: OffsetRange,
        held: Int64s | None,
        is_shared: bool,
        now_us: int,
    ) -> int:
        """Remove the oldest files past retention that neither the log nor an important group needs; returns how many.

        Files with nothing but messages that were deleted on request are removed too. `local` are the offsets of the
        log. In a shared store the positions of those groups are read here, and nothing expires before the database's
        clock says so: that of this server may be ahead.
        """
        columns = all_archive_files.c
        live = select(all_archive_files).where(columns.topicid == topic_id, columns.removed_us.is_(None))

        def expire(connection: Connection) -> int:
            known = connection.execute(_locked(topic_id)).one_or_none()
            rows = connection.execute(live.order_by(columns.place)).all()
            if known is None or not rows:
                return 0
            reached = _held(connection, topic_id, len(_ends(known.ends))) if is_shared else held
            files, removed_us = [_file(row) for row in rows], database_us(connection) if is_shared else now_us
            at_us = min(now_us, removed_us)
            count = expired(files, retention_seconds, local.start, reached, at_us, local.deleted_before)
            if count:
                doomed = columns.topicid == topic_id, columns.path.in_([row.path for row in rows[:count]])
                connection.execute(update(all_archive_files).where(*doomed).values(removed_us=removed_us))
                _change(connection, known)
            return count

        return self._do(expire)

    def database_us(self) -> int:
        """The clock of the database of a shared store."""
        return self._do(database_us)

    def listed(self, topic_id: int) -> dict[str, int | None]:
        """Every file of a topic that has a row, and since when it is removed."""
        columns = all_archive_files.c
        query = select(columns.path, columns.removed_us).where(columns.topicid == topic_id)
        return {row.path: row.removed_us for row in self._do(lambda connection: connection.execute(query).all())}

    def forget(self, topic_id: int, paths: Sequence[str]) -> None:
        """Delete the rows of removed files that no longer exist."""
        columns = all_archive_files.c
        doomed = columns.topicid == topic_id, columns.path.in_(list(paths)), columns.removed_us.is_not(None)
        statement = delete(all_archive_files).where(*doomed)
        self._do(lambda connection: connection.execute(statement))


def _locked(topic_id: int) -> Any:
    return select(all_archives).where(all_archives.c.topicid == topic_id).with_for_update()


def _is_listed(connection: Connection, topic_id: int, path: str) -> bool:
    columns = all_archive_files.c
    query = select(columns.place).where(columns.topicid == topic_id, columns.path == path)
    return connection.execute(query).scalar() is not None


def _change(connection: Connection, known: Any, **values: Any) -> None:
    statement = update(all_archives).where(all_archives.c.topicid == known.topicid)
    connection.execute(statement.values(version=known.version + 1, **values))


def _same(one: Int64s, other: Int64s) -> bool:
    """Whether offsets by partition are the same; missing ones are 0."""
    length = max(len(one), len(other))
    return np.array_equal(np.pad(one, (0, length - len(one))), np.pad(other, (0, length - len(other))))


def _ends(text: str) -> Int64s:
    return np.array(msgspec.json.decode(text, type=list[int]), np.int64)


def _file(row: Any) -> ArchiveFile:
    ranges = _RANGES.decode(row.ranges)
    return ArchiveFile(row.path, row.rows, row.bytes, row.checksum, row.first_us, row.last_us, ranges)


def _row(topic_id: int, file: ArchiveFile, place: int, now_us: int) -> Any:
    ranges = msgspec.json.encode(file.ranges).decode()
    values = {"rows": file.rows, "bytes": file.bytes, "checksum": file.checksum, "ranges": ranges}
    times = {"first_us": file.first_us, "last_us": file.last_us, "created_us": now_us}
    return insert(all_archive_files).values(topicid=topic_id, path=file.path, place=place, **values, **times)


def _held(connection: Connection, topic_id: int, partitions: int) -> Int64s | None:
    """By partition the lowest offset that an important group has not read; None without such groups."""
    committed = important_offsets(connection, topic_id).values()
    if not committed:
        return None
    lowest = [min(offsets.get(partition, 0) for offsets in committed) for partition in range(partitions)]
    return np.array(lowest, np.int64)

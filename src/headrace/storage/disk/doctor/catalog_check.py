"""Checks the catalog of a disk store row by row, without changing it.

The database is opened read-only. An error of SQLite ends the check of that table; a row that breaks a rule is reported,
and the others are still checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from sqlalchemy import Table

from headrace.core.checks import check_partitions
from headrace.core.errors import HeadraceError, InvalidInput, UnknownFormat
from headrace.core.groups.group import ReadFrom, check_read_from
from headrace.core.hashes.columns import Int64s
from headrace.core.hashes.scram import ScramSecret
from headrace.core.names import check_group_name, check_topic_name, topic_key
from headrace.core.rights import Grant
from headrace.core.text import counted
from headrace.core.topics.settings import TopicSettings
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.opening.journal import read_journal
from headrace.storage.tables import (
    VERSION,
    all_archives,
    all_consumers,
    all_groups,
    all_tokens,
    all_topics,
    headrace_catalog,
)

Row = Mapping[str, Any]
_TOPIC_TEXTS: Final = ("topickey", "topicname", "settings", "deleted_before")
_OTHER_TEXTS: Final = ("groupname", "read_from", "tokenid", "name", "grants", "secret_hash", "ends", "holder", "scram")
_TEXTS: Final = frozenset((*_TOPIC_TEXTS, *_OTHER_TEXTS))
_BYTES: Final = frozenset(("metadata",))
_NULLABLE_TIMES: Final = ("expires_us", "used_us", "grace_until_us")
_NULLABLE: Final = (*_NULLABLE_TIMES, "consumers", "holder", "committed", "leader_epoch", "metadata", "scram")
_ARCHIVE_VERSION: Final = 3


@dataclass(slots=True)
class CheckedCatalog:
    """The content of the catalog: partitions by topic, the highest topic id ever, committed offsets, findings.

    deletions: by topic and partition the offset below which messages were deleted on request.
    journal: what is left to do of commits of several topics.
    archived: by topic and partition the offset up to which the manifest of the archive is complete.
    """

    partitions: dict[int, int] = field(default_factory=dict)
    last_topic_id: int = 0
    offsets: list[Row] = field(default_factory=list)
    deletions: dict[tuple[int, int], int] = field(default_factory=dict)
    archived: dict[int, list[int]] = field(default_factory=dict)
    journal: list[JournalEntry] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def offsets_past(self, ends: Mapping[int, Int64s]) -> Iterator[str]:
        """Committed offsets beyond the end of their partition."""
        for row in self.offsets:
            known = ends.get(row["topicid"])
            if known is not None and not 0 <= row["queueoffset"] <= known[row["partition"]]:
                end = known[row["partition"]]
                raised = "; the next opening raises the end, so that the group skips nothing"
                yield f"{_name(row)}: offset {row['queueoffset']}, but the partition ends at {end}{raised}"
        for (topic_id, partition), offset in self.deletions.items():
            known = ends.get(topic_id)
            if known is not None and offset > known[partition]:
                raised = "; the next opening raises the end"
                what = f"messages below offset {offset} were deleted, but the partition ends at {known[partition]}"
                yield f"topicid {topic_id}, partition {partition}: {what}{raised}"


def check_catalog(path: Path, is_closed: bool) -> CheckedCatalog:
    """Check the file itself, then every row of every table; after a clean close there is no write-ahead log."""
    checked = CheckedCatalog()
    # Without a write-ahead log SQLite would create one, and leave it behind.
    mode = "immutable=1" if is_closed else "mode=ro"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as database:
            database.row_factory = sqlite3.Row
            problems = [row[0] for row in database.execute("PRAGMA integrity_check")]
            checked.complaints += [] if problems == ["ok"] else problems
            version = database.execute(f"SELECT max(version) FROM {headrace_catalog.name}").fetchone()[0]
            if version is not None and version > VERSION:
                raise UnknownFormat(str(path), version, VERSION)
            _check_rows(database, checked, version or 0)
            _, checked.journal = read_journal(database)
    except sqlite3.Error as error:
        checked.complaints.append(str(error))
    return checked


def _check_rows(database: sqlite3.Connection, checked: CheckedCatalog, version: int) -> None:
    for row in _rows(database, all_topics, _check_topic, checked):
        checked.partitions[row["topicid"]] = row["partitions"]
        checked.deletions |= {(row["topicid"], number): offset for number, offset in enumerate(_deleted_before(row))}
    groups = {(row["topicid"], row["groupname"]) for row in _rows(database, all_groups, _check_group, checked)}
    for row in _rows(database, all_consumers, _check_types, checked):
        partitions = checked.partitions.get(row["topicid"])
        if partitions is None or (row["topicid"], row["groupname"]) not in groups:
            checked.complaints.append(f"{_name(row)}: there is no such group")
        elif not 0 <= row["partition"] < partitions:
            checked.complaints.append(f"{_name(row)}: the topic has {counted(partitions, 'partition')}")
        else:
            checked.offsets.append(row)
    for _ in _rows(database, all_tokens, _check_token, checked):
        pass
    if version >= _ARCHIVE_VERSION:
        for row in _rows(database, all_archives, _check_archive, checked):
            checked.archived[row["topicid"]] = _ends(row)
    last = database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", [all_topics.name]).fetchone()
    checked.last_topic_id = 0 if last is None else last[0]


def _rows(
    database: sqlite3.Connection, table: Table, check: Callable[[Row], None], checked: CheckedCatalog
) -> Iterator[Row]:
    """The valid rows of a table; invalid ones are reported."""
    for found in database.execute(f"SELECT * FROM {table.name}"):
        row = dict(found)
        try:
            _check_types(row)
            check(row)
        except (HeadraceError, msgspec.MsgspecError) as error:
            checked.complaints.append(f"{table.name}, {_name(row)}: {error}")
        else:
            yield row


def _check_types(row: Row) -> None:
    """SQLite accepts any value in any column."""
    for name, value in row.items():
        wanted = str if name in _TEXTS else bytes if name in _BYTES else int
        if not isinstance(value, wanted) and not (value is None and name in _NULLABLE):
            raise InvalidInput(name, repr(value)[:100], "it has the wrong type")


def _check_topic(row: Row) -> None:
    check_topic_name(row["topicname"])
    if row["topickey"] != topic_key(row["topicname"]):
        raise InvalidInput("topickey", repr(row["topickey"]), "it is not that of the topic's name")
    check_partitions(row["partitions"])
    msgspec.json.decode(row["settings"], type=TopicSettings).change()
    if len(_deleted_before(row)) > row["partitions"]:
        raise InvalidInput("deleted_before", row["deleted_before"][:100], f"there are {row['partitions']} partitions")


def _deleted_before(row: Row) -> list[int]:
    """What was deleted on request of a topic; catalogs of earlier versions do not have it."""
    return msgspec.json.decode(row.get("deleted_before", "[]"), type=list[int])


def _check_group(row: Row) -> None:
    check_group_name(row["groupname"])
    read_from: ReadFrom = msgspec.json.decode(row["read_from"], type=ReadFrom)
    check_read_from(read_from)


def _check_token(row: Row) -> None:
    msgspec.json.decode(row["grants"], type=tuple[Grant, ...])
    if row.get("scram") is not None:
        msgspec.json.decode(row["scram"], type=ScramSecret)


def _check_archive(row: Row) -> None:
    _ends(row)


def _ends(row: Row) -> list[int]:
    return msgspec.json.decode(row["ends"], type=list[int])


def _name(row: Row) -> str:
    """What identifies a row; for a token only its id."""
    keys = ("topicid", "topicname", "groupname", "partition", "tokenid")
    return ", ".join(f"{key} {row[key]!r}" for key in keys if key in row)

"""A commit of several topics on disk: all of it, or nothing, whenever the process or the machine stops.

    hold the logs, by their ids       nobody else writes to these topics
    decide, write, sync               the frames of each topic, which do not count before one more frame is behind them
    one transaction of the catalog    the key, what groups become, and the last frame of each topic: THE DECISION
    write, sync                       the last frame of each topic, a few hundred bytes for which there is room
    apply, show                       readers see it

| stopped | opening the store does |
|---|---|
| before the transaction is in the catalog's journal | nothing: frames of an unfinished commit are cut, as always |
| after that, with any of the last frames written | writes and syncs them all before it opens a log: `opening/journal` |
| while it does so, or afterwards | the same again, which changes nothing |
| a topic was deleted, or a segment dropped since | skips it |
| (not stopped) COMMIT fails in an unknown way, or a last frame cannot be written | the logs accept nothing until then |

In the last case groups may already be where the commit brings them, while its messages come with the next opening.

Rows are written once, in their segments, however many there are: the catalog's journal has no messages. Its entries are
removed with the next such commit, or at the close. Every step syncs, also in a store that does not sync otherwise: half
a commit must not survive a power cut. Thread-safe. Lock order: the logs by topic id, `_deciding`, the catalog's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection

from headrace.core.errors import DiskFull, OutcomeUnknown
from headrace.core.messages import NO_MESSAGES
from headrace.core.publish.payload_window import NO_PAYLOADS
from headrace.core.publish.plan import plan_close
from headrace.core.publish.sources import NO_UPDATES
from headrace.core.publish.state import NOWHERE, Commit
from headrace.storage.commits.store_commits import JournalEntry, StoreCommits
from headrace.storage.disk.files import frame
from headrace.storage.disk.log import DiskLog, WrittenFrame
from headrace.storage.interface import Decide, StoreCommit

# The size of a last frame, which does not depend on what it says.
_FIRST: Final = plan_close(Commit(0, 0, NO_MESSAGES, NOWHERE, 0, (), NO_UPDATES, NO_PAYLOADS), 0)
_LAST_FRAME_BYTES: Final = frame.encode(_FIRST, 0, 0)[0].bytes


class _Begun(NamedTuple):
    """The frames of a commit in one log, all but the last."""

    log: DiskLog
    written: list[WrittenFrame]

    def last(self, number: int) -> tuple[WrittenFrame, JournalEntry]:
        """The last frame, for the commit with this number."""
        topic_id, segment = self.log.topic.id, self.log.newest.header.first_number
        before = self.written[-1]
        position = before.position + before.header.bytes
        commit = plan_close(before.commit, number)
        header, buffers = frame.encode(commit, topic_id, position)
        assert header.bytes == _LAST_FRAME_BYTES, "a last frame fits the room that was made for it"
        place = segment, before.position, before.header.checksum, position
        return WrittenFrame(position, header, commit, buffers[1]), JournalEntry(topic_id, *place, b"".join(buffers))


class StoreCommitter:
    """Makes the commits of several topics of a store. Thread-safe."""

    def __init__(self, commits: StoreCommits) -> None:
        self._commits = commits
        # Numbers are given in the order of the decisions: a backup has all up to that of its catalog.
        self._deciding = threading.Lock()
        self._number = commits.number()
        # Commits whose entries in the journal are no longer needed.
        self._done: set[int] = set()

    def commit(self, logs: Sequence[tuple[DiskLog, Decide]], commit: StoreCommit) -> None:
        """Make a commit; the logs are in the order of their topics' ids."""
        begun: list[_Begun] = []
        # Whether the transaction of the catalog got to its COMMIT.
        decided: list[bool] = []
        with ExitStack() as held:
            for log, _ in logs:
                held.enter_context(log.writing)
            try:
                for log, decide in logs:
                    if written := log.begin(decide, _LAST_FRAME_BYTES):
                        begun.append(_Begun(log, written))
                number, frames = self._decide(begun, commit, decided)
                for each, (last, entry) in zip(begun, frames, strict=True):
                    each.log.end([*each.written, last], entry.frame)
                for each in begun:
                    each.log.show()
            except BaseException as error:
                # A full disk is noticed before COMMIT writes what makes it valid.
                in_doubt = bool(decided) and not isinstance(error, DiskFull)
                reason = f"a commit of several topics: {error!r}"
                for each in begun:
                    # A log that cannot be cut has failed, and says so to the next who writes.
                    with suppress(OutcomeUnknown):
                        each.log.break_off(reason, error, in_doubt)
                if in_doubt and isinstance(error, Exception):
                    raise OutcomeUnknown(", ".join(log.topic.name for log, _ in logs), reason) from error
                raise
        with self._deciding:
            self._done.add(number)

    def _decide(
        self, begun: Sequence[_Begun], commit: StoreCommit, decided: list[bool]
    ) -> tuple[int, list[tuple[WrittenFrame, JournalEntry]]]:
        """Store the decision; returns its number, and the last frames."""
        commits = self._commits
        with self._deciding:
            number, done = self._number + 1, self._done.copy()
            frames = [each.last(number) for each in begun]

            def store(connection: Connection) -> None:
                commits.record(connection, commit.key, commit.changes, commit.now_us)
                commits.write(connection, number, [entry for _, entry in frames], done)
                decided.append(True)

            commits.do(store)
            self._number = number
            self._done -= done
        return number, frames

    def close(self) -> None:
        """Remove what is no longer needed; if that fails, the next opening does it."""
        with self._deciding:
            if self._done:
                self._commits.clear(self._done)
                self._done = set()

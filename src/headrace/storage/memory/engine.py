"""The memory store: the same catalog on an in-memory SQLite, and logs in lists."""

from __future__ import annotations

from contextlib import ExitStack
from weakref import WeakValueDictionary

from sqlalchemy import create_engine, event
from sqlalchemy.pool import StaticPool

from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.interface import StoreCommit
from headrace.storage.memory.log import MemoryLog
from headrace.storage.memory.stages import MemoryStages


class MemoryStore:
    """An open memory store."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool)
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
        self.catalog = Catalog(engine, "memory:")
        self.stages = MemoryStages()
        self.signals: None = None
        self._logs: WeakValueDictionary[int, MemoryLog] = WeakValueDictionary()

    def create_log(self, topic: TopicRecord, now_us: int) -> None:
        """Nothing to create before it is opened."""

    def open_log(self, topic: TopicRecord, now_us: int) -> MemoryLog:
        """The empty log of a new topic."""
        log = self._logs[topic.id] = MemoryLog(topic)
        return log

    def delete_log(self, topic_id: int) -> None:
        """Drop the stages; the log is freed with its last user."""
        self.stages.drop_topic(topic_id)

    def commit(self, commit: StoreCommit) -> None:
        """Decide for all topics, store what is of the catalog, and apply."""
        logs = [(self._logs[topic_id], decide) for topic_id, decide in sorted(commit.topics.items())]
        with ExitStack() as held:
            for log, _ in logs:
                held.enter_context(log.writing)
            decided = [(log, log.decide(decide)) for log, decide in logs]
            commits = self.catalog.commits
            commits.do(lambda connection: commits.record(connection, commit.key, commit.changes, commit.now_us))
            for log, taken in decided:
                log.take(taken)

    def disk_space(self) -> None:
        """The store is not on a disk."""

    def can_write(self) -> bool:
        """Memory that runs out is an error of the request."""
        return True

    def examine(self) -> None:
        """There is nothing to check."""

    def close(self) -> None:
        """Forget everything."""
        self.catalog.close()

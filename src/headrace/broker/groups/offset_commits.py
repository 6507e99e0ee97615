"""Combines offset commits of several groups of a shared topic into one transaction.

Consumers of many groups commit through one server, each a moment after the other: those that wait share a transaction
(`combiner`). Every commit is checked by itself under the lock of its group, and one that is refused leaves the others
alone. What cannot be done together is left to its own thread, so that it holds up nobody: a commit whose group does
not exist or is being changed at this moment, and all of them if the transaction fails for whatever reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.broker.publish.combiner import Combiner, Waiter
from headrace.core.errors import HeadraceError, StorageError
from headrace.core.groups.group import Group
from headrace.core.groups.notes import NO_NOTES, CommitNote
from headrace.storage.catalog import Catalog, GroupOffsets


@dataclass(slots=True, eq=False)
class OffsetCommit(Waiter):
    """One consumer's commit, its check, and its outcome."""

    group: str
    check: Callable[[Group], Mapping[int, int]]
    notes: Mapping[int, CommitNote] = field(default_factory=lambda: NO_NOTES)
    is_decided: bool = False
    error: HeadraceError | None = None


class OffsetCommits(Combiner[OffsetCommit]):
    """The waiting commits of one topic's groups. Thread-safe."""

    def __init__(self, catalog: Catalog, topic_id: int) -> None:
        super().__init__()
        self._catalog = catalog
        self._topic_id = topic_id

    def commit(self, commit: OffsetCommit) -> bool:
        """Commit together with other waiters, or raise the rejection; returns whether it was possible."""
        self.share(commit)
        if commit.error is not None:
            raise commit.error
        return commit.is_decided

    def work(self, taken: Sequence[OffsetCommit]) -> None:
        """Store the offsets of all commits that pass their check."""
        decided: list[OffsetCommit] = []

        def decide(groups: Mapping[str, Group]) -> GroupOffsets:
            decided[:] = [commit for commit in taken if commit.group in groups]
            return _decide(decided, groups)

        try:
            self._catalog.raise_offsets(self._topic_id, sorted({commit.group for commit in taken}), decide)
        except StorageError:
            for commit in taken:
                commit.error = None
            return
        for commit in decided:
            commit.is_decided = True


def _decide(commits: Sequence[OffsetCommit], groups: Mapping[str, Group]) -> GroupOffsets:
    """The highest offset by group and partition of all commits that pass their check; of equal ones the last."""
    offsets: dict[tuple[str, int], tuple[int, CommitNote | None]] = {}
    for commit in commits:
        commit.error = None
        try:
            allowed = commit.check(groups[commit.group])
        except HeadraceError as error:
            commit.error = error
            continue
        for partition, offset in allowed.items():
            place = commit.group, partition
            if place not in offsets or offset >= offsets[place][0]:
                offsets[place] = offset, commit.notes.get(partition)
    return offsets

"""Commits of several topics: stages of each, and offsets of groups, become durable and visible together or not at all.

    commit(named stages, offsets, key)
      the turn of the writer           one commit of a writer at a time
      CommitBuilder, for each topic    checks the rows of its stages
      Groups.joining, for each group   checks the offsets, and holds the turn of the group
      Store.commit                     asks the builders, writes, applies; locks the topics meanwhile
      Topic.tell                       receipts, counters, readers
      drop the stages
      TopicIntake.pay                  waits if partitions were written too fast: once, for the slowest topic

The key is remembered by the store and not by its topics: a commit with a known key publishes nothing, whatever topics
it names now. So a batch whose rows are routed by chance may be repeated. As for stages of one topic, the key decides
and not the stages: they may be gone, or another call may be publishing them right now.

What goes to one topic without offsets of groups costs less as a commit of that topic alone (`stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field

from headrace.broker.checks import check_distinct, check_stages, check_transaction_offsets
from headrace.broker.clock import Clock
from headrace.broker.groups.turns import GroupTurns
from headrace.broker.publish.commit_builder import CommitBuilder
from headrace.broker.publish.staged_rows import StagedRows
from headrace.broker.publish.stages import drop
from headrace.broker.publish.submission import Submission
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.broker.topics.topic import Topic, short_of_memory
from headrace.core.errors import CommitConflict, HeadraceError, StageNotFound
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.reports.descriptions import Staged, TransactionOffsets, TransactionOutcome
from headrace.storage.interface import Fences, RepeatedCommit, Store, StoreCommit

Stages = Mapping[str, tuple[OpenTopic, Sequence[Staged]]]
Offsets = Sequence[tuple[OpenTopic, TransactionOffsets]]


@dataclass(slots=True, eq=False)
class _Part:
    """What a commit writes to one topic; the topics are asked in the order of their ids, maybe several times.

    before: the parts that are asked before it and share payloads with it. window: the payloads that it adds itself.
    """

    topic: Topic
    builder: CommitBuilder
    submission: Submission
    key: CommitKey | None
    before: Sequence[_Part] = ()
    window: PayloadWindow = field(default_factory=PayloadWindow)

    def decide(self, state: TopicState, fences: Fences) -> Iterable[Commit]:
        """What is written to the topic."""
        if self._was_published(state):
            return ()
        if not self.builder.shares_window:
            return self._checked(self.builder.build(state, fences))
        self.window = PayloadWindow()
        windows = [*self.topic.other_windows(), *(part.window for part in self.before)]
        return self._remembered(self._checked(self.builder.build(state, fences, windows)))

    def _was_published(self, state: TopicState) -> bool:
        """Whether an earlier version, which remembered keys by topic, was interrupted after this topic."""
        key = self.key
        last = None if key is None else state.last_key(key.writer)
        if key is None or last is None or key.number > last.number:
            return False
        if key.conflicts_with(last):
            raise CommitConflict(self.topic.record.name, key.writer, key.number, last.number)
        return True

    def _checked(self, commits: Iterable[Commit]) -> Iterable[Commit]:
        """Nothing is written anywhere if the rows of one topic are refused."""
        if self.submission.error is not None:
            raise self.submission.error
        return commits

    def _remembered(self, commits: Iterable[Commit]) -> Iterator[Commit]:
        for commit in commits:
            self.window.add(commit.payloads)
            yield commit


class StoreTransactions:
    """Commits of several topics of a store. Thread-safe."""

    def __init__(self, store: Store, topics: Topics, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._turns = GroupTurns()

    def commit(
        self,
        stages: Mapping[str, Sequence[Staged]],
        offsets: Sequence[TransactionOffsets],
        key: CommitKey | None,
    ) -> TransactionOutcome:
        """Publish the stages of some topics and commit offsets; see `Broker.commit_transaction`."""
        named = {topic: (self._topics.find(topic), each) for topic, each in check_stages(stages).items()}
        groups = [(self._topics.find(asked.topic), asked) for asked in check_transaction_offsets(offsets)]
        check_distinct("stages", (found.record.name for found, _ in named.values()))
        check_distinct("offsets", ((found.record.name, asked.group) for found, asked in groups))
        return self._commit(named, groups, key)

    def _commit(self, stages: Stages, offsets: Offsets, key: CommitKey | None) -> TransactionOutcome:
        with nullcontext() if key is None else self._turns.of(key.writer):
            last, parts = self._check_new(key), dict[str, _Part]()
            try:
                if last is None:
                    last, parts = self._make(stages, offsets, key)
            except RepeatedCommit:
                last = self._check_new(key)
        for found, named in stages.values():
            # They expire if this fails; the commit does not.
            with suppress(HeadraceError):
                drop(self._store.stages, found.topic, [staged.stage for staged in named])
        if parts:
            slowest = max(parts.values(), key=lambda part: part.submission.answer_at)
            slowest.topic.intake.pay(slowest.submission)
        totals = {name: part.submission.totals for name, part in parts.items()}
        return TransactionOutcome({name: (each.written, each.dropped) for name, each in totals.items()}, last)

    def _check_new(self, key: CommitKey | None) -> int | None:
        """The number of the last commit of the writer if that shows that this one was made before."""
        last = None if key is None else self._store.catalog.commits.last_key(key.writer)
        if key is None or last is None or key.number > last.number:
            return None
        if key.conflicts_with(last):
            raise CommitConflict("", key.writer, key.number, last.number)
        return last.number

    def _make(self, stages: Stages, offsets: Offsets, key: CommitKey | None) -> tuple[int | None, dict[str, _Part]]:
        """What was written, by topic as named; or the number of the writer's last commit, if that was this one."""
        with ExitStack() as held:
            try:
                parts = {name: self._part(found.topic, named, key, held) for name, (found, named) in stages.items()}
            except StageNotFound:
                # Another server may be publishing them.
                if (last := self._check_new(key)) is not None:
                    return last, {}
                raise
            self._write(list(parts.values()), offsets, key)
        for part in parts.values():
            part.topic.tell(part.builder)
        return None, parts

    def _part(self, topic: Topic, named: Sequence[Staged], key: CommitKey | None, held: ExitStack) -> _Part:
        rows = StagedRows(self._store.stages, topic.record, named, topic.intake.together_bytes)
        submission = Submission(staged=held.enter_context(rows))
        return _Part(topic, topic.builder([submission]), submission, key)

    def _write(self, parts: Sequence[_Part], offsets: Offsets, key: CommitKey | None) -> None:
        """Write everything, in the order of the locks."""
        parts = sorted(parts, key=lambda part: part.topic.record.id)
        sharing = [part for part in parts if part.builder.shares_window]
        for place, part in enumerate(sharing):
            part.before = sharing[:place]
        with ExitStack() as held:
            for part in parts:
                held.enter_context(part.topic.using())
            if sharing:
                held.enter_context(sharing[0].topic.store_window_lock)
            groups = sorted(offsets, key=lambda each: (each[0].record.id, each[1].group))
            changes = [held.enter_context(found.groups.joining(asked)) for found, asked in groups]
            decisions = {part.topic.record.id: part.decide for part in parts}
            commit = StoreCommit(decisions, self._clock.now_us(), key, changes, store_wide=bool(sharing))
            try:
                self._store.commit(commit)
            except MemoryError as error:
                names = ", ".join(repr(part.topic.record.name) for part in parts)
                raise short_of_memory(f"publishing to the topics {names}", error) from error

"""Builds a group commit: its submissions are checked together, planned as one batch, and answered one by one.

    CommitBuilder(submissions, topic)   checks the rows of the submissions
      .build(state, fences)          plans the commits; the log calls it, then writes and applies them
      .answer()                      gives each submission its receipts, and returns a summary

A submission that breaks a rule gets its error and does not affect the others, except those behind it in its lane; the
same holds if its rows make checking or planning fail unexpectedly, such as for lack of memory. The parts of a
submission are refused or written one by one (`parts`). A submission whose commit key was used before publishes
nothing, nor does one of a fenced producer. A log may build again, if its connection broke: the last result counts.
What is too large for one frame is planned in pieces on a copy of the state; the frames become visible together. Each
piece is planned lazily, so that its rows are written and freed before the next one needs memory. Staged rows that are
large are read only then, and answered with totals: so a commit of any size costs no more memory than a few frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.broker.clock import Clock
from headrace.broker.publish.parts import PartGroup, PassedNumbers
from headrace.broker.publish.staged_rows import StagedRows
from headrace.broker.publish.submission import Submission, batches_of
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import CommitConflict, HeadraceError, ProducerFenced
from headrace.core.messages import NO_MESSAGES, accept_all, content_bytes, join
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.placed import Places, may_stay, plan_placed
from headrace.core.publish.plan import plan
from headrace.core.publish.receipts import (
    CONFLICT,
    DUPLICATE_BY_PAYLOAD,
    DUPLICATE_BY_SOURCE,
    DUPLICATE_COMMIT,
    NO_RECEIPTS,
    NO_TOTALS,
    WRITTEN,
    Receipts,
    Totals,
    all_duplicates,
    join_receipts,
)
from headrace.core.publish.seqno_jumps import SeqnoWatch, may_jump
from headrace.core.publish.state import Commit, CommitKey, Directory, TopicState
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Fences, StagePiece

DROPPED_COUNTERS: Final = {
    DUPLICATE_BY_SOURCE: "duplicates_by_source",
    DUPLICATE_BY_PAYLOAD: "duplicates_by_payload",
    DUPLICATE_COMMIT: "duplicates_by_commit_key",
    CONFLICT: "conflicts",
}
# The rows of a submission: in memory, or in stages.
_Rows = Sequence[pa.RecordBatch] | StagedRows

_rows_of: Final = attrgetter("rows")
_NOTHING: Final = np.zeros(0, np.uint8)


class CommitSummary(NamedTuple):
    """The summary of a commit: the directory of each frame, the number of messages, and counters.

    `single` is the commit if it is one frame; `written` are the bytes by partition, if their speed is limited.
    """

    frames: Sequence[Directory]
    messages: int
    single: Commit | None
    counts: Mapping[str, int]
    written: Mapping[int, int]


class CommitBuilder:
    """Builds one commit from some submissions. Not thread-safe."""

    def __init__(
        self,
        submissions: Sequence[Submission],
        topic: TopicRecord,
        limits: BrokerSettings,
        clock: Clock,
        passed: PassedNumbers,
    ) -> None:
        self._submissions = submissions
        self._topic = topic
        self._limits = limits
        self._clock = clock
        # Of the last build: its submissions and their receipts, the directory of each frame, the number of messages and
        # the bytes of their values, keys and attributes.
        self._fresh: list[Submission | PartGroup] = []
        self._receipts: list[Receipts] = []
        # Or instead of receipts the totals of the only submission with anything to write, if its rows are staged.
        self._alone: Submission | None = None
        self._totals = NO_TOTALS
        self._frames: list[Directory] = []
        self._messages = self._bytes = 0
        self._written = Counter[int]()
        self._single: Commit | None = None
        # The payload window that it was built on, and how many payloads it had evicted early before.
        self._window: PayloadWindow | None = None
        self._forgotten_before = 0
        # The submissions with a commit key, and those that were staged, each with its rows.
        self._keyed = [(each, self._check_alone(each)) for each in submissions if _is_keyed(each)]
        # The parts of submissions: those that are numbered, and the others.
        parts = [part for each in submissions for part in each.parts]
        numbered = [part for part in parts if part.numbering is not None]
        others = [part for part in parts if part.numbering is None] if numbered else parts
        self._groups = [PartGroup(group, topic, passed) for group in (numbered, others) if group]
        # The other valid submissions, and their rows: in one batch, or in one for each.
        self._plain = [each for each in submissions if not each.parts and not _is_keyed(each)]
        self._plain_batches: Sequence[pa.RecordBatch] = ()
        if self._plain:
            self._plain, self._plain_batches = self._check(self._plain)

    @property
    def submissions(self) -> Sequence[Submission]:
        """What it commits, refused ones too."""
        return self._submissions

    @property
    def shares_window(self) -> bool:
        """Whether payloads are deduplicated across topics; the settings of the topic may have changed since."""
        return self._topic.settings.shares_window

    def build(self, state: TopicState, fences: Fences, windows: Sequence[PayloadWindow] = ()) -> Iterable[Commit]:
        """Plan the valid, new submissions; payloads must not be in the given other windows either."""
        if any(submission.fence is not None for submission in self._submissions):
            self._check_fences(fences)
        now_us = self._clock.now_us()
        try:
            return self._build(state, now_us, windows)
        except HeadraceError:
            raise
        except Exception:
            # Planning changes nothing, so each can be tried separately.
            if not self._refuse_at_fault(state, now_us, windows):
                raise
            return self._build(state, now_us, windows)

    def answer(self) -> CommitSummary:
        """Give each submission its receipts, in the order sent; returns a summary."""
        fresh = set(self._fresh)
        for submission, _ in self._keyed:
            if submission.error is None and submission not in fresh:
                self._answer_repeated(submission)
        if self._alone is not None:
            self._alone.total(self._totals)
        elif len(self._receipts) == len(self._fresh) == 1:
            self._fresh[0].answer(self._receipts[0])
        elif self._fresh:
            receipts, start = join_receipts(self._receipts), 0
            for each in self._fresh:
                each.answer(receipts.slice(start, start + each.rows))
                start += each.rows
        for submission in self._submissions:
            if submission.parts:
                submission.answer(NO_RECEIPTS)
        return CommitSummary(self._frames, self._messages, self._single, self._counts(), self._written)

    @staticmethod
    def _answer_repeated(submission: Submission) -> None:
        """Its key was used before."""
        if submission.staged is None:
            submission.answer(all_duplicates(submission.rows, DUPLICATE_COMMIT))
        else:
            submission.total(Totals.all(submission.rows, DUPLICATE_COMMIT))

    def _counts(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        if self._frames:
            counts["commits_written"] = 1
            counts["frames_written"] = len(self._frames)
            counts["messages_written"] = self._messages
            counts["bytes_written"] = self._bytes
        if self._messages < sum(submission.rows for submission in self._submissions):
            asked: list[Submission | PartGroup] = [*self._submissions, *self._groups]
            answered = [each.receipts.outcome for each in asked if each.receipts is not None]
            outcomes = np.bincount(np.concatenate(answered or [_NOTHING]), minlength=CONFLICT + 1)
            outcomes += sum((submission.totals for submission in self._submissions), NO_TOTALS).counts
            outcomes[DUPLICATE_BY_SOURCE] += sum(group.repeated_rows for group in self._groups)
            for outcome, counter in DROPPED_COUNTERS.items():
                if outcomes[outcome]:
                    counts[counter] = int(outcomes[outcome])
        if self._window is not None and self._window.forgotten_early > self._forgotten_before:
            counts["payloads_forgotten_early"] = self._window.forgotten_early - self._forgotten_before
        return counts

    def _build(self, state: TopicState, now_us: int, windows: Sequence[PayloadWindow]) -> Iterable[Commit]:
        self._receipts, self._frames, self._messages, self._bytes, self._single = [], [], 0, 0, None
        self._alone, self._totals, self._written = None, NO_TOTALS, Counter[int]()
        settings = self._topic.settings
        self._window, self._forgotten_before = state.window, state.window.forgotten_early
        # A limit, not content: it applies from the next payload on.
        state.window.messages_max = settings.deduplication_window_messages
        if settings.deduplication == "payload":
            state.window.date_back(now_us)
        if settings.deduplication != "off":
            self._refuse_jumps(state, now_us)
        batches = self._take_fresh_plain()
        for group in self._groups:
            if rows := group.decide(state):
                self._fresh.append(group)
                batches += rows
        keyed: list[_Rows] = []
        keys = self._take_fresh_keyed(state, keyed) if self._keyed else ()
        if len(keyed) == len(self._fresh) == 1 and isinstance(keyed[0], StagedRows):
            self._alone = next(submission for submission, rows in self._keyed if rows is keyed[0])
        if not self._fresh:
            return ()
        size = sum(submission.bytes for submission in self._submissions)
        if (
            sum(submission.rows for submission in self._fresh) <= self._limits.frame_rows
            and size <= self._limits.frame_bytes
        ):
            places = None
            if keyed:
                staged = list(_pieces_of(keyed))
                batches += map(_rows_of, staged)
                places = self._places(staged[0], state) if len(staged) == 1 else None
            rows = batches[0] if len(batches) == 1 else join(batches or [NO_MESSAGES])
            commit = self._planned(rows, state, now_us, keys, windows, places)
            self._single = commit
            return () if commit is None else (commit,)
        draft = state.copy()
        pieces = self._pieces(_pieces_of([batches, *keyed]), draft)
        return self._in_pieces(pieces, draft, now_us, keys, windows)

    def _in_pieces(
        self,
        pieces: Iterable[StagePiece],
        draft: TopicState,
        now_us: int,
        keys: tuple[CommitKey, ...],
        windows: Sequence[PayloadWindow],
    ) -> Iterator[Commit]:
        """The frames of one commit, one after another; all but the last have `continues`."""
        before: Commit | None = None
        for piece, is_last in _with_last(pieces):
            commit = self._planned(piece.rows, draft, now_us, keys if is_last else (), windows, piece.places)
            if commit is None:
                continue
            draft.apply(commit)
            if before is not None:
                yield replace(before, continues=True)
            before = commit
        if before is not None:
            yield before

    def _planned(
        self,
        rows: pa.RecordBatch,
        state: TopicState,
        now_us: int,
        keys: tuple[CommitKey, ...],
        windows: Sequence[PayloadWindow],
        places: Places | None = None,
    ) -> Commit | None:
        """The commit of some rows, unless there is nothing to write."""
        if places is not None:
            commit = plan_placed(rows, places, state, now_us, keys)
            self._totals += Totals.all(rows.num_rows, WRITTEN)
        else:
            commit, receipts = plan(rows, state, self._topic.settings, now_us, keys, windows)
            if self._alone is None:
                self._receipts.append(receipts)
            else:
                self._totals += Totals.of(receipts.outcome)
        if not commit.rows.num_rows and not keys:
            return None
        self._frames.append(commit.directory)
        self._messages += commit.rows.num_rows
        self._bytes += content_bytes(commit.rows)
        if self._topic.settings.write_limit is not None:
            self._written.update(commit.bytes_by_partition())
        return commit

    def _check(self, submissions: list[Submission]) -> tuple[list[Submission], Sequence[pa.RecordBatch]]:
        """The valid submissions and their canonical rows, in order; the others get their error."""
        sent = batches_of(submissions)
        accepted, errors = accept_all(sent, self._topic.settings, self._topic.partitions)
        if len(sent) < len(submissions) and (errors or len(accepted) > 1):
            # Single values were checked in one batch: now each by itself.
            sent = [batch for each in submissions for batch in batches_of([each])]
            accepted, errors = accept_all(sent, self._topic.settings, self._topic.partitions)
        if not errors:
            return submissions, accepted
        valid, rows = iter(accepted), list[pa.RecordBatch]()
        for submission, error in zip(submissions, errors, strict=True):
            if error is None:
                rows.append(next(valid))
            else:
                submission.refuse(error)
        return [submission for submission in submissions if submission.error is None], rows

    def _check_alone(self, submission: Submission) -> _Rows:
        return self._check([submission])[1] if submission.staged is None else submission.staged

    def _check_fences(self, fences: Fences) -> None:
        """Refuse submissions of fenced producers; an unknown producer is accepted with its epoch."""
        newest = fences.epochs(
            [submission.fence.source for submission in self._submissions if submission.fence is not None]
        )
        for submission in self._submissions:
            fence = submission.fence
            if fence is None or submission.error is not None:
                continue
            current = newest.get(fence.source, -1)
            if fence.epoch < current:
                submission.refuse(ProducerFenced(self._topic.name, fence.source[0], fence.epoch, current))
            elif fence.epoch > current:
                newest[fence.source] = fence.epoch
                fences.put(fence.source, fence.epoch)

    def _refuse_jumps(self, state: TopicState, now_us: int) -> None:
        """Give each submission whose seqnos jump its error."""
        numbered = chain(self._plain_batches, *(_numbered(rows) for _, rows in self._keyed))
        if not any(may_jump(batch) for batch in numbered if "seqno" in batch.schema.names):
            return
        watch = SeqnoWatch(state.sources, now_us)
        for submission, batch in self._plain_rows():
            if submission.error is None:
                submission.error = watch.check([batch])
        for submission, rows in self._keyed:
            is_repeated = submission.key is not None and state.is_repeated(submission.key)
            if submission.error is None and not is_repeated:
                submission.error = watch.check(_numbered(rows))

    def _refuse_at_fault(self, state: TopicState, now_us: int, windows: Sequence[PayloadWindow]) -> bool:
        """Give each submission that cannot be planned alone its error; returns whether others are left."""
        if self._alone is not None:
            return False
        rows: dict[Submission | PartGroup, Sequence[pa.RecordBatch]] = {
            submission: list(map(_rows_of, _pieces_of([each]))) for submission, each in self._keyed
        }
        rows |= {submission: [batch] for submission, batch in self._plain_rows()}
        rows |= {group: group.decided for group in self._groups}
        for each in self._fresh:
            try:
                plan(join(rows[each]), state, self._topic.settings, now_us, (), windows)
            except Exception as error:
                each.refuse(error)
        return 0 < sum(each.error is None for each in self._fresh) < len(self._fresh)

    def _plain_rows(self) -> Iterator[tuple[Submission, pa.RecordBatch]]:
        """The rows of each plain submission: those of all that were checked together are in one batch."""
        start = 0
        together = self._plain_batches[0] if len(self._plain_batches) == 1 else None
        for place, submission in enumerate(self._plain):
            yield submission, self._plain_batches[place] if together is None else together.slice(start, submission.rows)
            start += submission.rows

    def _take_fresh_plain(self) -> list[pa.RecordBatch]:
        """The rows of the valid plain submissions."""
        self._fresh = list[Submission | PartGroup](each for each in self._plain if not each.is_refused())
        if len(self._fresh) == len(self._plain):
            return list(self._plain_batches)
        return [batch for submission, batch in self._plain_rows() if submission.error is None]

    def _take_fresh_keyed(self, state: TopicState, fresh: list[_Rows]) -> tuple[CommitKey, ...]:
        """Add the submissions whose commit key was not used before, neither in the log nor by one before it here."""
        keys: dict[str, CommitKey] = {}
        for submission, rows in self._keyed:
            key = submission.key
            if submission.is_refused():
                continue
            if key is not None:
                last = keys.get(key.writer) or state.last_key(key.writer)
                if last is not None and key.conflicts_with(last):
                    submission.refuse(CommitConflict(self._topic.name, key.writer, key.number, last.number))
                    continue
                if last is not None and key.number <= last.number:
                    continue
                keys[key.writer] = key
            self._fresh.append(submission)
            fresh.append(rows)
        return tuple(recorded for key in keys.values() for recorded in key.recorded())

    def _pieces(self, pieces: Iterable[StagePiece], state: TopicState) -> Iterator[StagePiece]:
        """The same rows, joined or cut such that each piece fits a frame; those that are placed stay as they are."""
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for piece in pieces:
            if self._places(piece, state) is not None:
                if group:
                    yield StagePiece(join(group))
                    group, rows, size = [], 0, 0
                yield piece
                continue
            for part, part_size in self._cut(piece.rows):
                is_full = rows + part.num_rows > self._limits.frame_rows or size + part_size > self._limits.frame_bytes
                if group and is_full:
                    yield StagePiece(join(group))
                    group, rows, size = [], 0, 0
                group.append(part)
                rows, size = rows + part.num_rows, size + part_size
        if group:
            yield StagePiece(join(group))

    def _places(self, piece: StagePiece, state: TopicState) -> Places | None:
        """Where rows stay if they were placed; of others than one alone are receipts, in the order sent."""
        places = None if self._alone is None else piece.places
        return places if places is not None and may_stay(places, state, self._topic.settings) else None

    def _cut(self, batch: pa.RecordBatch) -> list[tuple[pa.RecordBatch, int]]:
        """Parts of a batch that each fit a frame, assuming rows of similar size, and their sizes."""
        size = batch.nbytes
        count = max(1, -(-size // self._limits.frame_bytes), -(-batch.num_rows // self._limits.frame_rows))
        if count == 1:
            return [(batch, size)]
        step = -(-batch.num_rows // count)
        parts = [batch.slice(start, step) for start in range(0, batch.num_rows, step)]
        return [(part, part.nbytes) for part in parts]


def _is_keyed(submission: Submission) -> bool:
    return submission.key is not None or submission.staged is not None


def _pieces_of(given: Iterable[_Rows]) -> Iterator[StagePiece]:
    """The rows of submissions, one after another."""
    for rows in given:
        yield from rows if isinstance(rows, StagedRows) else map(StagePiece, rows)


def _numbered(rows: _Rows) -> Iterable[pa.RecordBatch]:
    """The rows of a submission that may have seqnos."""
    if not isinstance(rows, StagedRows):
        return rows
    return map(_rows_of, rows) if rows.has_sources else ()


def _with_last(pieces: Iterable[StagePiece]) -> Iterator[tuple[StagePiece, bool]]:
    """Each piece, and whether it is the last."""
    before: StagePiece | None = None
    for piece in pieces:
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True

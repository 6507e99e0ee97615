"""Deciding on the requests of a group commit together: checked in one go, planned as one batch, answered one by one.

A request that breaks a rule gets its error and leaves the others alone, and so does one whose rows make checking or
planning fail in a way that nobody expected, a lack of memory among them. A request whose commit key was used before
publishes nothing, nor does one of a producer that was fenced off. A store may ask twice, if its connection broke.
What is too large for one frame is planned in pieces on a copy of the state; the frames become visible together. Each
piece is planned when it is asked for, so that its rows are written and gone before the next one needs memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.broker.publish.commit_queue import Fence, Request
from headrace.core.errors import HeadraceError, ProducerFenced
from headrace.core.limits import FRAME_BYTES, FRAME_ROWS
from headrace.core.messages import accept_all, content_bytes, join
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.plan import (
    DUPLICATE_COMMIT,
    WRITTEN,
    Commit,
    CommitKey,
    Directory,
    Receipts,
    SeqnoWatch,
    TopicState,
    all_duplicates,
    join_receipts,
    may_jump,
    plan,
)
from headrace.core.settings import TopicSettings
from headrace.storage.interface import SharedLog


class CommitBuilder:
    """What is written of some requests, in one commit."""

    def __init__(self, requests: Sequence[Request], settings: TopicSettings, partitions: int) -> None:
        # Of what was decided: where the rows of each frame are, how many messages they are, and the bytes
        # of their values, keys and attributes.
        self.frames: list[Directory] = []
        self.written = 0
        self.bytes_written = 0
        self._requests = requests
        self._settings = settings
        self._fresh: list[Request] = []
        self._receipts: list[Receipts] = []
        self._plain = [request for request in requests if _is_plain(request)]
        self._plain_batches = self._check(self._plain, partitions) if self._plain else []
        self._keyed = [request for request in requests if not _is_plain(request)]
        self._keyed_batches = [self._check_alone(request, partitions) for request in self._keyed]
        self._may_jump = any(map(may_jump, chain(self._plain_batches, *self._keyed_batches)))

    def decide(self, state: TopicState, now_us: int, windows: Sequence[PayloadWindow]) -> Iterable[Commit]:
        """Plan what is good and fresh of the requests."""
        try:
            return self._decide(state, now_us, windows)
        except HeadraceError:
            raise
        except Exception:
            # Planning changes nothing, so each can be tried by itself.
            if not self._refuse_at_fault(state, now_us, windows):
                raise
            return self._decide(state, now_us, windows)

    def _refuse_at_fault(self, state: TopicState, now_us: int, windows: Sequence[PayloadWindow]) -> bool:
        """Give each request that cannot be planned alone its error; whether some others are left."""
        rows = dict(zip(self._keyed, self._keyed_batches, strict=True)) | self._plain_rows()
        for request in self._fresh:
            try:
                plan(join(rows[request]), state, self._settings, now_us, (), windows)
            except Exception as error:
                request.error = error
        good = [request for request in self._fresh if request.error is None]
        self._plain_batches = [batch for request in good if _is_plain(request) for batch in rows[request]]
        return 0 < len(good) < len(self._fresh)

    def _plain_rows(self) -> dict[Request, Sequence[pa.RecordBatch]]:
        """The rows of each plain request that is good; they may have been put together."""
        good = [request for request in self._plain if request.error is None]
        if len(self._plain_batches) == len(good):
            return {request: [batch] for request, batch in zip(good, self._plain_batches, strict=True)}
        rows: dict[Request, Sequence[pa.RecordBatch]] = {}
        (together,), start = self._plain_batches, 0
        for request in good:
            rows[request] = [together.slice(start, request.rows)]
            start += request.rows
        return rows

    def _decide(self, state: TopicState, now_us: int, windows: Sequence[PayloadWindow]) -> Iterable[Commit]:
        self.frames, self.written, self.bytes_written, self._receipts = [], 0, 0, []
        plain, batches = self._without_jumps(state, now_us)
        self._fresh = plain
        # A bound, not content: it counts from the next payload on.
        state.window.messages_max = self._settings.deduplication_window_messages
        keys = self._take_fresh_keyed(state, batches)
        if not batches:
            return []
        if sum(request.rows for request in self._fresh) <= FRAME_ROWS and self.bytes <= FRAME_BYTES:
            commit = self._planned(join(batches), state, now_us, keys, windows)
            return [] if commit.is_empty else [commit]
        return self._in_pieces(_pieces(batches), state.copy(), now_us, keys, windows)

    def _in_pieces(
        self,
        pieces: Sequence[Sequence[pa.RecordBatch]],
        draft: TopicState,
        now_us: int,
        keys: tuple[CommitKey, ...],
        windows: Sequence[PayloadWindow],
    ) -> Iterator[Commit]:
        """The frames of one commit, one after another; all but the last say that they go on."""
        before: Commit | None = None
        for place, piece in enumerate(pieces, 1):
            commit = self._planned(join(piece), draft, now_us, keys if place == len(pieces) else (), windows)
            if commit.is_empty:
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
    ) -> Commit:
        commit, receipts = plan(rows, state, self._settings, now_us, keys, windows)
        self._receipts.append(receipts)
        if not commit.is_empty:
            self.frames.append(commit.directory)
            self.written += commit.rows.num_rows
            self.bytes_written += content_bytes(commit.rows)
        return commit

    @property
    def fences(self) -> list[Fence]:
        """The producers among the publishers."""
        return [request.fence for request in self._requests if request.fence is not None]

    def check_fences(self, topic: str, log: SharedLog) -> None:
        """Refuse what comes from producers that were taken over; one that is not known is taken at its word."""
        newest = log.epochs([fence.source for fence in self.fences])
        for request in self._requests:
            fence = request.fence
            if fence is None or request.error is not None:
                continue
            current = newest.get(fence.source, -1)
            if fence.epoch < current:
                request.error = ProducerFenced(topic, fence.source[0], fence.epoch, current)
            elif fence.epoch > current:
                newest[fence.source] = fence.epoch
                log.put_epoch(fence.source, fence.epoch)

    @property
    def bytes(self) -> int:
        """The bytes of what the requests hold, as they came."""
        return sum(request.bytes for request in self._requests)

    def answer(self) -> None:
        """Give each request its receipts, in the order sent."""
        for request in self._keyed:
            if request.error is None:
                request.receipts = all_duplicates(request.rows, DUPLICATE_COMMIT)
        if not self._fresh:
            return
        receipts = self._receipts[0] if len(self._receipts) == 1 else join_receipts(self._receipts)
        start = 0
        for request in self._fresh:
            request.receipts = receipts.slice(start, start + request.rows)
            start += request.rows

    def duplicates(self) -> dict[int, int]:
        """How many messages were not written, by the reason."""
        if self.written == sum(request.rows for request in self._requests):
            return {}
        answered = [request.receipts.outcome for request in self._requests if request.receipts is not None]
        counts = np.bincount(np.concatenate(answered)) if answered else np.zeros(0, np.int64)
        return {outcome: int(count) for outcome, count in enumerate(counts) if outcome != WRITTEN}

    def _check(self, requests: Sequence[Request], partitions: int) -> list[pa.RecordBatch]:
        """The canonical rows of the requests that are good, in their order; the others get their error."""
        checked = accept_all([batch for request in requests for batch in request.batches], self._settings, partitions)
        good = [batch for batch in checked if not isinstance(batch, Exception)]
        if len(good) < len(checked):
            for request, outcome in zip(requests, checked, strict=True):
                request.error = outcome if isinstance(outcome, Exception) else None
        return good

    def _check_alone(self, request: Request, partitions: int) -> Sequence[pa.RecordBatch]:
        return request.batches if request.is_checked else self._check([request], partitions)

    def _without_jumps(self, state: TopicState, now_us: int) -> tuple[list[Request], list[pa.RecordBatch]]:
        """The plain requests to write, and their rows; requests whose seqnos jump get their error, keyed ones too."""
        fresh = [request for request in self._plain if request.error is None]
        if self._settings.deduplication == "off" or not self._may_jump:
            return fresh, list(self._plain_batches)
        watch = SeqnoWatch(state.sources, now_us)
        kept: list[Request] = []
        batches: list[pa.RecordBatch] = []
        for request, batch in zip(fresh, self._plain_by_request(fresh), strict=True):
            request.error = watch.check([batch])
            if request.error is None:
                kept.append(request)
                batches.append(batch)
        for request, rows in zip(self._keyed, self._keyed_batches, strict=True):
            is_repeated = request.key is not None and state.is_repeated(request.key)
            if request.error is None and not is_repeated:
                request.error = watch.check(rows)
        return kept, batches

    def _plain_by_request(self, fresh: Sequence[Request]) -> Iterator[pa.RecordBatch]:
        """The rows of each plain request: those of all that were checked together are in one batch."""
        start = 0
        rows = self._plain_batches[0] if len(self._plain_batches) == 1 else None
        for place, request in enumerate(fresh):
            yield self._plain_batches[place] if rows is None else rows.slice(start, request.rows)
            start += request.rows

    def _take_fresh_keyed(self, state: TopicState, batches: list[pa.RecordBatch]) -> tuple[CommitKey, ...]:
        """Add the requests whose commit key was not used before, neither in the log nor by one before it here."""
        keys: dict[str, CommitKey] = {}
        for request, rows in zip(self._keyed, self._keyed_batches, strict=True):
            key = request.key
            if request.error is not None:
                continue
            if key is not None:
                before = keys.get(key.writer)
                if state.is_repeated(key) or (before is not None and key.number <= before.number):
                    continue
                keys[key.writer] = key
            self._fresh.append(request)
            batches += rows
        return tuple(keys.values())


def _is_plain(request: Request) -> bool:
    return request.key is None and request.fence is None and not request.is_checked


def _pieces(batches: Sequence[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Batches to be put together, some of them cut, so that each piece fits a frame."""
    pieces: list[list[pa.RecordBatch]] = []
    rows = size = 0
    for part, part_size in chain.from_iterable(map(_cut, batches)):
        if not pieces or rows + part.num_rows > FRAME_ROWS or size + part_size > FRAME_BYTES:
            pieces.append([])
            rows = size = 0
        pieces[-1].append(part)
        rows, size = rows + part.num_rows, size + part_size
    return pieces


def _cut(batch: pa.RecordBatch) -> list[tuple[pa.RecordBatch, int]]:
    """Parts of a batch that each fit a frame, as far as rows of like size allow, and their sizes."""
    size = batch.nbytes
    count = max(1, -(-size // FRAME_BYTES), -(-batch.num_rows // FRAME_ROWS))
    if count == 1:
        return [(batch, size)]
    step = -(-batch.num_rows // count)
    parts = [batch.slice(start, step) for start in range(0, batch.num_rows, step)]
    return [(part, part.nbytes) for part in parts]

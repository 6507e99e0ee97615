"""Members of a group: they poll, commit what they were given, and from time to time leave so that another may join.

Each runs in a thread of its own. A poll is recorded before anything of it is committed, so that a history never knows a
committed offset without the messages below it.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.client.consumer.consumer import Consumer
from headrace.core.errors import AnswerLost, Conflict, HeadraceError, NotFound, Unreachable
from headrace.verify.history.events import OffsetsCommitted, Outcome, Poll
from headrace.verify.history.file import Recorder
from headrace.verify.publishers import Connect, message_id

_SESSION_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.3
_PAUSE_SECONDS: Final = 0.2
_STAY_SECONDS: Final = (2.0, 15.0)
_MESSAGES_MAX: Final = 400


class Members:
    """One place in a group, taken by one member after another."""

    def __init__(self, group: str, place: int, topic: str, recorder: Recorder, seed: int) -> None:
        self._group = group
        self._place = place
        self._topic = topic
        self._recorder = recorder
        self._random = random.Random(f"{seed}-{group}-{place}")
        self._joined = 0

    def run(self, connect: Connect, stop: threading.Event, settle: threading.Event) -> None:
        """Read until stopped; in the final phase no member leaves any more."""
        with connect() as client:
            while not stop.is_set():
                self._joined += 1
                member = f"{self._group}-{self._place}-{self._joined}"
                # The next offset after what was delivered and not committed; newly assigned ones start at the group's.
                given: dict[int, int] = {}
                try:
                    consumer = client.consumer(
                        self._topic,
                        self._group,
                        member_id=member,
                        session_timeout_seconds=_SESSION_SECONDS,
                        on_assigned=partial(_forget, given),
                    )
                except HeadraceError:
                    stop.wait(_PAUSE_SECONDS)
                    continue
                try:
                    _Membership(consumer, member, self._group, self._recorder, self._random, given).run(stop, settle)
                finally:
                    _close(consumer)


class _Membership:
    """The life of one member."""

    def __init__(
        self,
        consumer: Consumer,
        member: str,
        group: str,
        recorder: Recorder,
        chance: random.Random,
        given: dict[int, int],
    ) -> None:
        self._consumer = consumer
        self._member = member
        self._group = group
        self._recorder = recorder
        self._random = chance
        # After an error while partitions changed, those of the consumer may not be those of its generation.
        self._is_certain = True
        self._given = given

    def run(self, stop: threading.Event, settle: threading.Event) -> None:
        ends_at = time.monotonic() + self._random.uniform(*_STAY_SECONDS)
        while not stop.is_set() and (settle.is_set() or time.monotonic() < ends_at):
            try:
                self._poll()
                if self._given and (settle.is_set() or self._random.random() < 0.5):
                    self._commit()
            except HeadraceError:
                self._is_certain = False
                if self._random.random() < 0.5:
                    return
                stop.wait(_PAUSE_SECONDS)

    def _poll(self) -> None:
        called_ns = time.monotonic_ns()
        batch = self._consumer.poll(self._random.randint(1, _MESSAGES_MAX), timeout=_POLL_SECONDS)
        if not batch.num_rows:
            return
        generation = self._consumer.generation if self._is_certain else None
        runs = runs_of(batch)
        self._given |= {partition: offset + len(ids) for partition, offset, ids in runs}
        partitions = self._consumer.assignment
        self._recorder.record(
            Poll(self._group, self._member, generation, partitions, runs, called_ns, time.monotonic_ns())
        )

    def _commit(self) -> None:
        positions = self._consumer.positions()
        # A partition with another position was revoked or moved since: nothing of it is committed.
        offsets = {partition: offset for partition, offset in self._given.items() if positions.get(partition) == offset}
        called_ns = time.monotonic_ns()
        outcome: Outcome = "ok"
        reason = ""
        try:
            for partition in self._consumer.commit():
                # Another member's by now, or moved by a seek: nothing of it is committed.
                offsets.pop(partition, None)
            self._given.clear()
        except HeadraceError as error:
            outcome, reason = _outcome(error), f"{error.code}: {error}"
            raise
        finally:
            if offsets:
                ended_ns = time.monotonic_ns()
                self._recorder.record(
                    OffsetsCommitted(self._group, self._member, offsets, outcome, called_ns, ended_ns, reason[:200])
                )


def runs_of(batch: pa.RecordBatch) -> list[tuple[int, int, list[str]]]:
    """A batch as runs of consecutive offsets: partition, first offset, ids."""
    partitions, offsets = np.asarray(batch.column("partition")), np.asarray(batch.column("offset"))
    ids = [message_id(value) for value in batch.column("value").to_pylist()]
    is_next = (partitions[1:] == partitions[:-1]) & (offsets[1:] == offsets[:-1] + 1)
    bounds = [0, *(np.flatnonzero(~is_next) + 1).tolist(), batch.num_rows]
    return [(int(partitions[start]), int(offsets[start]), ids[start:end]) for start, end in pairwise(bounds)]


def _forget(given: dict[int, int], partitions: list[int]) -> None:
    for partition in partitions:
        given.pop(partition, None)


def _outcome(error: HeadraceError) -> Outcome:
    """After a conflict a part may have been committed: a consumer tries again with the partitions that it kept."""
    is_certain = isinstance(error, NotFound | Unreachable) and not isinstance(error, AnswerLost | Conflict)
    return "failed" if is_certain else "unknown"


def _close(consumer: Consumer) -> None:
    try:
        consumer.close()
    except HeadraceError:
        return

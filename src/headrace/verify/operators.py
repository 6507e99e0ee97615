"""The operator, who moves groups and adds partitions, and the observer, who looks at groups and offsets."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

from headrace.client import Client
from headrace.core.errors import Conflict, HeadraceError, InvalidInput, NotFound, OffsetOutOfRange
from headrace.verify.history.events import GroupSeen, Grown, OffsetsSeen, Outcome, SeekStarted, Sought
from headrace.verify.history.file import Recorder
from headrace.verify.publishers import Connect
from headrace.verify.workload import Workload

_SEEK_SECONDS: Final = (2.0, 6.0)
_LOOK_SECONDS: Final = 0.25
_REFUSED: Final = (InvalidInput, NotFound, Conflict, OffsetOutOfRange)


class Operator:
    """Moves groups while their members read, and adds partitions."""

    def __init__(self, topic: str, workload: Workload, recorder: Recorder) -> None:
        self._topic = topic
        self._workload = workload
        self._recorder = recorder
        self._random = random.Random(f"{workload.seed}-operator")

    def run(self, connect: Connect, stop: threading.Event) -> None:
        """Work until stopped."""
        added = 0
        with connect() as client:
            while not stop.wait(self._random.uniform(*_SEEK_SECONDS)):
                try:
                    if added < self._workload.partitions_added and self._random.random() < 0.3:
                        added += 1
                        self._grow(client, self._workload.partitions + added)
                    elif self._workload.seeks:
                        self._seek(client)
                except HeadraceError:
                    continue

    def _grow(self, client: Client, partitions: int) -> None:
        # Recorded first: it may be done although its answer is lost.
        self._recorder.record(Grown(partitions, time.monotonic_ns()))
        client.alter_topic(self._topic, partitions=partitions)

    def _seek(self, client: Client) -> None:
        offsets = client.offsets(self._topic)
        chosen = self._random.sample(sorted(offsets), self._random.randint(1, len(offsets)))
        targets = {partition: self._random.randint(*offsets[partition]) for partition in chosen}
        group = self._random.choice(self._workload.group_names())
        number = self._recorder.number()
        self._recorder.record(SeekStarted(number, group, targets, time.monotonic_ns()))
        outcome: Outcome = "ok"
        reason = ""
        try:
            client.seek(self._topic, group, targets)
        except HeadraceError as error:
            outcome = "failed" if isinstance(error, _REFUSED) else "unknown"
            reason = f"{error.code}: {error}"
        self._recorder.record(Sought(number, outcome, time.monotonic_ns(), reason[:200]))


class Observer:
    """Looks at all groups and at the offsets of the topic, again and again."""

    def __init__(self, topic: str, groups: list[str], recorder: Recorder) -> None:
        self._topic = topic
        self._groups = groups
        self._recorder = recorder

    def run(self, connect: Connect, stop: threading.Event) -> None:
        """Poll until stopped."""
        with connect() as client:
            while not stop.wait(_LOOK_SECONDS):
                try:
                    self.look(client)
                except HeadraceError:
                    continue

    def look(self, client: Client) -> int:
        """Poll once; returns how many messages the groups have not committed."""
        lag = 0
        self._recorder.record(OffsetsSeen(client.offsets(self._topic), time.monotonic_ns()))
        for group in self._groups:
            called_ns = time.monotonic_ns()
            seen = client.describe_group(self._topic, group)
            committed = {
                partition: progress.committed
                for partition, progress in seen.progress.items()
                if progress.committed is not None
            }
            self._recorder.record(
                GroupSeen(
                    group, seen.generation, seen.important, seen.members, committed, called_ns, time.monotonic_ns()
                )
            )
            lag += sum(progress.lag_messages for progress in seen.progress.values())
        return lag

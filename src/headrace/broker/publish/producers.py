"""Producers and their epochs: of several that were opened for one source only the newest may write.

An epoch is the time of opening, made to grow, so it means the same after a restart: nothing here is stored. Whoever
comes first after a restart with its epoch is taken at its word, until one comes whose epoch is newer.

A producer that is opened waits for what its predecessor is writing at that moment. Otherwise it would be told a last
seqno that is outdated at once, would use the same numbers again, and its messages would be taken for duplicates.

One lock, held only to look and to count, never while anything is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.errors import Overloaded, ProducerFenced
from headrace.core.limits import PRODUCERS_MAX

Source = tuple[int, str, str]


@dataclass(slots=True)
class _Opened:
    epoch: int
    writing: int = 0


class Producers:
    """The open producers of a broker, by topic id, producer id and message group id. Safe for threads."""

    def __init__(self) -> None:
        self._idle = threading.Condition()
        self._opened: dict[Source, _Opened] = {}

    def open(self, topic: str, source: Source, epoch: int | None, now_us: int, patience_seconds: float) -> int:
        """The epoch of a new producer, or of one that goes on; writing of others has ended when this returns."""
        with self._idle:
            opened = self._opened.pop(source, None) or _Opened(epoch or 0)
            self._opened[source] = opened
            self._forget_oldest()
            if epoch is None:
                opened.epoch = max(now_us, opened.epoch + 1)
            else:
                self._check(topic, source, opened, epoch)
            mine = opened.epoch
            self._await_idle(topic, opened, patience_seconds)
            self._check(topic, source, opened, mine)
            return mine

    @contextmanager
    def writing(self, topic: str, source: Source, epoch: int) -> Iterator[None]:
        """Write as the producer of an epoch, unless a newer one was opened."""
        with self._idle:
            opened = self._opened.setdefault(source, _Opened(epoch))
            self._check(topic, source, opened, epoch)
            opened.writing += 1
        try:
            yield
        finally:
            with self._idle:
                opened.writing -= 1
                self._idle.notify_all()

    def _await_idle(self, topic: str, opened: _Opened, patience_seconds: float) -> None:
        deadline = time.monotonic() + patience_seconds
        while opened.writing:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Overloaded(f"the producer that was before on topic {topic!r}", 1, patience_seconds)
            self._idle.wait(left)

    @staticmethod
    def _check(topic: str, source: Source, opened: _Opened, epoch: int) -> None:
        if epoch < opened.epoch:
            raise ProducerFenced(topic, source[1], epoch, opened.epoch)
        # One that was opened before a restart, or was forgotten here, and is the newest that came since.
        opened.epoch = epoch

    def _forget_oldest(self) -> None:
        if len(self._opened) > PRODUCERS_MAX:
            idle = next((source for source, opened in self._opened.items() if not opened.writing), None)
            if idle is not None:
                del self._opened[idle]

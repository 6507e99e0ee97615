"""Searches a whole topic: its partitions one after the other, batch by batch, until the end, a limit or a stop.

The range is fixed when a search starts, so that it ends on a topic that grows. Memory is one batch and what was found,
which has a limit. Matching runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace import aio
from headrace.client.message import Message, messages_of
from headrace.client.read.decode import Decoder, Packed
from headrace.client.where.expression import Condition
from headrace.client.where.matching import matches
from headrace.console.messages.typed import TypedValues

FOUND_MAX: Final = 500
# A search that finds large messages ends when it holds this many bytes.
FOUND_BYTES_MAX: Final = 64 << 20
_BATCH_MESSAGES: Final = 50_000
# As much is matched at once, and not more batches than this, so that progress shows and a stop is seen.
_MATCHED_MESSAGES: Final = 10_000
_MATCHED_BYTES: Final = 16 << 20
_MATCHED_BATCHES: Final = 200


@dataclass
class Search:
    """One search and how far it is; read by the page that shows it, while `run` works."""

    topic: str
    condition: Condition
    ranges: dict[int, tuple[int, int]]
    typed: TypedValues = field(default_factory=lambda: TypedValues(None))
    found: list[Message] = field(default_factory=list)
    scanned: int = 0
    is_over: bool = False
    is_stopped: bool = False
    found_bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def total(self) -> int:
        """How many messages there are to look at."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def rate(self) -> float:
        """Messages per second."""
        seconds = (self.ended or time.monotonic()) - self.started
        return self.scanned / seconds if seconds > 0 else 0.0

    @property
    def is_full(self) -> bool:
        """Whether it ended because it found as much as it may hold."""
        return len(self.found) >= FOUND_MAX or self.found_bytes >= FOUND_BYTES_MAX

    def stop(self) -> None:
        """End after the batch that is being looked at."""
        self.is_stopped = True

    async def run(self, client: aio.AsyncClient) -> None:
        """Search; raises what the broker refuses."""
        try:
            for partition in sorted(self.ranges):
                start, end = self.ranges[partition]
                waiting: list[pa.RecordBatch] = []
                async for batch in client.scan(self.topic, partition, start, end, max_messages=_BATCH_MESSAGES):
                    if self.is_stopped or self.is_full:
                        return
                    waiting.append(batch)
                    # Small commits are stored as small batches: matching each by itself would cost more than reading.
                    if _is_enough(waiting):
                        await self._match(waiting)
                        waiting = []
                await self._match(waiting)
        finally:
            self.is_over, self.ended = True, time.monotonic()

    async def _match(self, waiting: list[pa.RecordBatch]) -> None:
        if not waiting or self.is_stopped or self.is_full:
            return
        batch = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        found = await asyncio.to_thread(_matching, self.topic, self.condition, batch, self.typed)
        self.scanned += batch.num_rows
        for message in found[: FOUND_MAX - len(self.found)]:
            if self.found_bytes >= FOUND_BYTES_MAX:
                return
            self.found.append(message)
            self.found_bytes += len(message.value or b"")


def _is_enough(waiting: list[pa.RecordBatch]) -> bool:
    rows, stored = sum(batch.num_rows for batch in waiting), sum(batch.nbytes for batch in waiting)
    return rows >= _MATCHED_MESSAGES or stored >= _MATCHED_BYTES or len(waiting) >= _MATCHED_BATCHES


def _matching(topic: str, condition: Condition, batch: pa.RecordBatch, typed: TypedValues) -> list[Message]:
    found: list[Message] = []
    found_bytes = 0
    for decoded in _decoded(topic, batch):
        chosen = decoded.filter(matches(condition, typed.readable(decoded)))
        for message in messages_of(chosen.slice(0, FOUND_MAX)):
            found.append(message)
            found_bytes += len(message.value or b"")
            # A batch that is small as stored may be thousands of times larger once it is decompressed.
            if len(found) >= FOUND_MAX or found_bytes >= FOUND_BYTES_MAX:
                return found
    return found


def _decoded(topic: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch with its values decompressed; those that cannot be stay as they are stored."""
    decoder = Decoder(topic, "raw")
    waiting = [batch]
    while waiting:
        for piece in decoder.pieces(waiting.pop(0)):
            if isinstance(piece, Packed):
                waiting.append(piece.batch)
            elif isinstance(piece, pa.RecordBatch):
                yield piece

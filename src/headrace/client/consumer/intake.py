"""The intake of a consumer: what its prefetch brought, decoded and put together into batches of the wanted size.

Decoding happens when messages are asked for, so that a value which cannot be decoded is met after everything before
it was returned. Used by the thread that polls; `wake` and `close` may be called from any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from headrace.client.consumer.prefetch import Prefetch
from headrace.client.consumer.progress import ReadProgress
from headrace.client.read.decode import Broken, Decoder, Packed, Passed, Piece, is_packed
from headrace.client.settings import ConsumerSettings
from headrace.client.transport.transport import Transport
from headrace.core.errors import again

# Batches are put together up to this size; larger ones are given as they came, since putting together is copying.
_TOGETHER_MESSAGES: Final = 4_096


class Intake:
    """Batches of some partitions, in the order of each."""

    def __init__(
        self,
        transport: Transport,
        topic: str,
        settings: ConsumerSettings,
        progress: ReadProgress,
        news: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._topic = topic
        self._settings = settings
        self._progress = progress
        # Called when there may be something to gather, for those who wait for several.
        self._news = news
        self._decoder = Decoder(topic, settings.on_undecodable) if settings.decode else None
        # Batches taken from the prefetch that are returned first.
        self._left: deque[Piece] = deque()
        self._prefetch: Prefetch | None = None
        self._closed = False
        self.skipped = 0
        # What was gathered last, from the positions that are followed.
        self._gathered: pa.RecordBatch | None = None

    def follow(self, positions: Mapping[int, int], is_growing: bool) -> None:
        """Read from these positions on, and no longer from those of before; and partitions that are added later."""
        if self._prefetch is not None:
            self._prefetch.close()
        self._left.clear()
        self._gathered = None
        settings = self._settings
        self._prefetch = Prefetch(
            self._transport,
            self._topic,
            positions,
            settings.max_prefetch_bytes,
            settings.timeout_seconds,
            mixed=True,
            growing=is_growing,
            news=self._news,
        )
        if self._closed:
            # By another thread, which may have closed only the one before.
            self._prefetch.close()

    def put_back(self, rest: pa.RecordBatch) -> None:
        """Messages that were taken and not given out come first the next time."""
        self._left.appendleft(rest)

    def gather(self, max_messages: int, timeout: float | None) -> pa.RecordBatch | None:
        """The available messages up to a limit, waiting for the first; None on timeout, or after a wake."""
        assert self._prefetch is not None, "it follows something"
        parts: list[pa.RecordBatch] = []
        rows = 0
        while rows < min(max_messages, _TOGETHER_MESSAGES):
            if not self._left:
                taken = self._prefetch.take(0.0 if parts else timeout)
                if taken is None:
                    break
                is_plain = self._decoder is None or not is_packed(taken)
                self._left.append(taken if is_plain else Packed(taken))
            piece = self._left[0]
            if not isinstance(piece, pa.RecordBatch):
                if parts:
                    # Met once what is before it was given out.
                    break
                self._meet(piece)
                continue
            self._left.popleft()
            room = max_messages - rows
            if piece.num_rows > room:
                self._left.appendleft(piece.slice(room))
                piece = piece.slice(0, room)
            parts.append(piece)
            rows += piece.num_rows
        if not parts:
            return None
        self._gathered = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return self._gathered

    def is_last(self, batch: pa.RecordBatch) -> bool:
        """Whether this was gathered last, and the same positions are still followed."""
        return self._gathered is batch

    def _meet(self, piece: Passed | Broken | Packed) -> None:
        """The next message, which cannot be decoded; everything before it was returned."""
        if isinstance(piece, Broken):
            # It stays where it is, and is met again unless a seek leads past it.
            raise again(piece.error)
        self._left.popleft()
        if isinstance(piece, Passed):
            self.skipped += piece.count
            self._progress.pass_over(piece.positions)
            return
        assert self._decoder is not None, "without a decoder nothing is packed"
        self._left.extendleft(reversed(self._decoder.pieces(piece.batch)))

    def wake(self) -> None:
        """Wake the thread that waits in `gather`."""
        if self._prefetch is not None:
            self._prefetch.wake()

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        if self._prefetch is not None:
            self._prefetch.close()

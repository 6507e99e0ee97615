"""Following: the batches of some partitions as they come, as an iterator that ends when it is closed."""

from __future__ import annotations

from types import TracebackType

import pyarrow as pa

from headrace.client.consumer.decode import decoded
from headrace.client.consumer.prefetch import Prefetch
from headrace.core.errors import Closed


class Following:
    """Batches for ever, each of one partition. Close it, or use it as a context manager; any thread may close it."""

    def __init__(self, prefetch: Prefetch, decode: bool) -> None:
        self._prefetch = prefetch
        self._decode = decode
        self._closed = False

    def __iter__(self) -> Following:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self.next()
        while batch is None:
            batch = self.next()
        return batch

    def next(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch, or none after so long."""
        batch = self.take(timeout)
        if batch is None and self._closed:
            raise StopIteration
        return batch

    def take(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch, or none after so long or when it is closed."""
        try:
            batch = self._prefetch.take(timeout)
        except Closed:
            if self._closed:
                return None
            raise
        return batch if batch is None or not self._decode else decoded(batch)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed

    def close(self) -> None:
        """Follow no more."""
        self._closed = True
        self._prefetch.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

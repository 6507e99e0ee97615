"""A stream that is started again where Spark had no patience with its Python.

Spark gives the process that plans a stream ten seconds to start, and has no setting for it. A busy machine may need
more: the query ends with an error of its own, and goes on from its checkpoint when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import messages_read

_SLOW_START: Final = "Python worker failed to connect back"
STARTS_MAX: Final = 10


def is_slow_start(error: object) -> bool:
    """Whether an error of a query says that its Python was not there in time."""
    return _SLOW_START in str(error)


class PatientQuery:
    """A query, as often as it must be started; begun, looked at and awaited by the thread that has the session."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._starts = 1
        self._query = start()
        # Rows that were read, by the number of the batch: one that failed is done again.
        self.rows: dict[int, int] = {}

    def goes_on(self) -> bool:
        """True, or the error that ended the query."""
        error = None if self._query.isActive else self._query.exception()
        if error is not None:
            self._start_again(error)
        return True

    def finish(self, timeout_seconds: float) -> None:
        """Wait for its end, which must be a good one."""
        while True:
            try:
                assert self._query.awaitTermination(int(timeout_seconds)), "the query did not end"
                break
            except Exception as error:
                self._start_again(error)
        self._count()

    def reports(self) -> Sequence[Any]:
        """Spark's reports about its last start, the newest last."""
        return self._query.recentProgress

    def stop(self) -> None:
        self._query.stop()

    def _start_again(self, error: Exception) -> None:
        if not is_slow_start(error) or self._starts == STARTS_MAX:
            raise error
        self._count()
        self._starts += 1
        self._query = self._start()

    def _count(self) -> None:
        self.rows |= {one.batchId: messages_read(one) for one in self._query.recentProgress if one.numInputRows}

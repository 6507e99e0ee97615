"""Queries that are started again, with queries that end as they are told to."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.starting import STARTS_MAX, PatientQuery

SLOW = RuntimeError("[STREAM_FAILED] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST")
OTHER = RuntimeError("[STREAM_FAILED] terminated with exception: at most 5 bytes")


class Ended:
    """A query that has ended."""

    isActive = False  # noqa: N815
    recentProgress = ()  # noqa: N815

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def exception(self) -> Exception | None:
        return self._error

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802
        if self._error is not None:
            raise self._error
        return True


def query_of(errors: list[Exception | None]) -> PatientQuery:
    return PatientQuery(lambda: cast(StreamingQuery, Ended(errors.pop(0))))


@pytest.mark.parametrize("times", [0, 1, STARTS_MAX - 1])
def test_a_slow_start_is_tried_again(times: int) -> None:
    errors: list[Exception | None] = [*[SLOW] * times, None]
    query_of(errors).finish(1.0)
    assert errors == []
    query = query_of([SLOW, None])
    assert query.goes_on() and query.goes_on()


def test_not_for_ever_and_not_after_other_errors() -> None:
    with pytest.raises(RuntimeError, match="connect back"):
        query_of([SLOW] * STARTS_MAX).finish(1.0)
    with pytest.raises(RuntimeError, match="5 bytes"):
        query_of([SLOW, OTHER, None]).finish(1.0)
    with pytest.raises(RuntimeError, match="5 bytes"):
        query_of([OTHER, None]).goes_on()

"""A consumer's stream that breaks again and again: patience begins anew whenever the server has served it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.consumer import prefetch
from headrace.client.consumer.prefetch import Prefetch
from headrace.core.errors import AnswerLost, Closed, HeadraceError

BREAKS = 3
MESSAGE = pa.record_batch({"partition": pa.array([0], pa.int32()), "offset": [0]})


class OneWait:
    """A backoff whose time is over after one pause."""

    def __init__(self, patience_seconds: float, stop: Any) -> None:
        self._waits = 0

    def wait(self, error: HeadraceError) -> bool:
        self._waits += 1
        return self._waits == 1


class BreakingStream:
    """Gives some batches, and breaks; or ends the reading for good."""

    def __init__(self, batches: Sequence[pa.RecordBatch], error: HeadraceError) -> None:
        self._batches, self._error = list(batches), error

    def read(self) -> pa.RecordBatch:
        if not self._batches:
            raise self._error
        return self._batches.pop()

    def cancel(self) -> None:
        pass


class BreakingTransport:
    """Its streams break, the last of them for good."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches, self.streams = batches, 0

    def read(self, ticket: Any) -> BreakingStream:
        self.streams += 1
        broken = AnswerLost("headrace://127.0.0.1:1", "the server was killed")
        return BreakingStream(self._batches, broken if self.streams <= BREAKS else Closed("the client"))


@pytest.mark.parametrize(
    ("batches", "patience_seconds", "streams"),
    [
        pytest.param([MESSAGE], 3600.0, BREAKS + 1, id="messages came"),
        pytest.param([], 0.0, BREAKS + 1, id="the stream was open for long"),
        pytest.param([], 3600.0, 2, id="nothing but breaks"),
    ],
)
def test_patience_begins_anew_when_the_server_has_served(
    monkeypatch: pytest.MonkeyPatch, batches: list[pa.RecordBatch], patience_seconds: float, streams: int
) -> None:
    monkeypatch.setattr(prefetch, "Backoff", OneWait)
    transport = BreakingTransport(batches)
    reading = Prefetch(transport, "orders", {0: 0}, 1 << 20, patience_seconds)  # type: ignore[arg-type]
    for _ in batches * (BREAKS + 1):
        assert reading.take(None) is not None
    with pytest.raises(AnswerLost if streams == 2 else Closed):
        reading.take(None)
    assert transport.streams == streams

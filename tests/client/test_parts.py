"""Small parts of the client by themselves: addresses, waiting, messages, progress, settings."""

from __future__ import annotations

import pickle
import threading
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.client import Message
from headrace.client.addresses import parse_addresses
from headrace.client.consumer.progress import ReadProgress
from headrace.client.message import messages_of
from headrace.client.retry import Backoff
from headrace.client.settings import ConsumerSettings, ProducerSettings
from headrace.core.errors import InvalidInput, LimitExceeded
from headrace.core.messages import READ_SCHEMA
from headrace.wire.operations import CreateTopic, DeleteGroup, DeleteTopic, PublishStaged


def rows(*places: tuple[int, int]) -> pa.RecordBatch:
    values = [
        {"partition": partition, "offset": offset, "timestamp": 1_000_000, "value": b"v"}
        for partition, offset in places
    ]
    return pa.RecordBatch.from_pylist(values, schema=READ_SCHEMA)


def test_addresses_are_parsed() -> None:
    given = parse_addresses("headrace://a:1,headrace+tls://[::1]:2, headrace://c")
    assert [address.location for address in given] == ["grpc+tcp://a:1", "grpc+tls://[::1]:2", "grpc+tcp://c:7071"]


@pytest.mark.parametrize(
    "url", ["", "a:1", "http://a:1", "headrace://", "headrace://a:b", "headrace://a/topic", "headrace://a,,", None]
)
def test_wrong_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        parse_addresses(url)


class Pauses(threading.Event):
    """Takes no time to wait, and knows how long it should have taken."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


def test_backoff_waits_longer_each_time_up_to_a_second() -> None:
    pauses = Pauses()
    backoff = Backoff(3600, pauses)
    assert all(backoff.wait() for _ in range(10))
    longest = [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0]
    for pause, most in zip(pauses.seconds, longest, strict=True):
        assert most / 2 <= pause <= most
    pauses.set()
    assert not backoff.wait(), "it is told to stop"


def test_backoff_waits_as_long_as_the_server_asks() -> None:
    pauses = Pauses()
    limited = LimitExceeded("till", "requests", "limits.requests_per_second", 10, 7.5)
    assert Backoff(3600, pauses).wait(limited)
    assert Backoff(2.0, pauses).wait(limited), "but not beyond its own deadline"
    asked, at_most = pauses.seconds
    assert asked == 7.5
    assert at_most <= 2.0


def test_backoff_ends() -> None:
    pauses = Pauses()
    assert not Backoff(0.0, pauses).wait()
    assert pauses.seconds == []
    backoff, began = Backoff(0.1), time.monotonic()
    while backoff.wait():
        pass
    assert time.monotonic() - began >= 0.1


def test_messages_have_every_column() -> None:
    row = {
        "partition": 1,
        "offset": 2,
        "timestamp": datetime(2024, 1, 2, tzinfo=UTC),
        "value": b"v",
        "key": b"k",
        "attributes": [("a", b"b")],
        "codec": "raw",
        "created_at": datetime(2023, 1, 2, 3, tzinfo=UTC),
        "producer_id": "p",
        "message_group_id": "g",
        "seqno": 9,
    }
    (message,) = messages_of(pa.RecordBatch.from_pylist([row], schema=READ_SCHEMA))
    assert message.attributes == {"a": b"b"}
    assert (message.timestamp, message.created_at) == (row["timestamp"], row["created_at"])
    assert message._asdict().keys() == Message(0, 0, 0, b"")._asdict().keys()
    assert pickle.loads(pickle.dumps(message)) == message


def test_progress_counts_what_was_reached() -> None:
    progress = ReadProgress()
    progress.begin({0: 5, 1: 0})
    progress.give(rows((0, 5), (0, 6), (1, 0), (0, 7)))
    assert progress.uncommitted() == {0: 8, 1: 1}
    progress.committed([0, 1])
    progress.give_by_rows(rows((0, 8), (1, 1), (0, 9)))
    progress.rows_given = 2
    assert progress.uncommitted() == {0: 9, 1: 2}
    progress.move({0: 3})
    assert progress.uncommitted() == {1: 2}
    progress.begin({1: 2})
    assert progress.positions() == {1: 2}
    progress.give(rows((0, 3)))
    assert progress.positions() == {1: 2}, "a partition that is another's by now does not count"


def test_only_calls_that_may_be_done_twice_are_repeated() -> None:
    assert CreateTopic("t").is_repeatable and not DeleteTopic("t").is_repeatable
    assert PublishStaged("t", [], "w").is_repeatable and not PublishStaged("t", []).is_repeatable
    assert not DeleteGroup("t", "g").is_repeatable


@pytest.mark.parametrize(
    "wrong",
    [
        {"linger_seconds": -1},
        {"batch_bytes_max": 0},
        {"codec": "brotli"},
        {"producer_id": ""},
        {"message_group_id": "g"},
        {"timeout_seconds": True},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        ProducerSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        ConsumerSettings(max_prefetch_bytes=0)

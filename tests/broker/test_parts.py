"""Parts of a commit: each written or refused by itself, and those with numbers only right behind the last one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from msgspec import structs

from headrace.broker.publish import commit_builder as decision
from headrace.broker.publish.commit_builder import CommitBuilder
from headrace.broker.publish.parts import UNKNOWN_OFFSET, Part, PassedNumbers
from headrace.broker.publish.submission import Submission
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import MessageTooLarge
from headrace.core.publish.plan import plan
from headrace.core.publish.sources import Source
from headrace.core.publish.state import TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.commits.fences import LocalFences
from tests.broker.clock import SettableClock
from tests.broker.messages import batch

LARGE = b"x" * (DEFAULT_SETTINGS.message_bytes_max + 1)


class Gap(Exception):
    """What comes before was not written."""


@dataclass
class Counted:
    """Numbers from 0 on; the source is the partition."""

    partition: int
    number: int

    @property
    def source(self) -> Source:
        return "counted", str(self.partition)

    def first_seqno(self, last: int | None) -> int:
        if self.number > (-1 if last is None else last) + 1:
            raise Gap(f"{self.number} after {last}")
        return self.number


class Topic:
    """Commits parts to a state, as a log does."""

    def __init__(self, settings: TopicSettings = DEFAULT_SETTINGS) -> None:
        self.state = TopicState(np.zeros(3, np.int64))
        self.passed = PassedNumbers()
        self.record = TopicRecord(1, "orders", "orders", 3, settings, 0)
        self.clock = SettableClock()
        self.written: list[tuple[int, bytes]] = []
        self.counts: dict[str, int] = {}

    def commit(self, *submissions: list[Part], builds: int = 1) -> None:
        given = [Submission(parts=parts) for parts in submissions]
        builder = CommitBuilder(given, self.record, BrokerSettings(), self.clock, self.passed)
        for _ in range(builds):
            commits = list(builder.build(self.state, LocalFences()))
        for commit in commits:
            self.state.apply(commit)
            partition = np.repeat(commit.directory.partition, commit.directory.rows)
            self.written += zip(partition.tolist(), commit.rows.column("value").to_pylist(), strict=True)
        self.counts = dict(builder.answer().counts)
        assert all(each.is_decided for each in given)


def plain(partition: int, *values: bytes) -> Part:
    return Part(partition, batch(*values), 0, len(values))


def counted(partition: int, number: int, *values: bytes) -> Part:
    return Part(partition, batch(*values), 0, len(values), Counted(partition, number))


def test_parts_are_written_in_the_order_of_partitions_and_each_knows_its_offset() -> None:
    topic = Topic()
    first, second = [plain(2, b"a", b"b"), plain(0, b"c")], [plain(2, b"d"), plain(1, b"e"), plain(0, b"f")]
    topic.commit(first, second)
    assert topic.written == [(0, b"c"), (0, b"f"), (1, b"e"), (2, b"a"), (2, b"b"), (2, b"d")]
    assert [part.offset for part in (*first, *second)] == [0, 0, 2, 0, 1]


def test_rows_that_were_decoded_together_are_taken_from_one_batch() -> None:
    topic, together = Topic(), batch(b"a", b"b", b"c", b"d")
    topic.commit([Part(1, together, 0, 1), Part(0, together, 1, 1), Part(2, together, 2, 2)])
    assert topic.written == [(0, b"b"), (1, b"a"), (2, b"c"), (2, b"d")]


def test_a_part_that_breaks_a_rule_is_refused_and_the_others_are_written() -> None:
    topic = Topic()
    parts = [plain(0, b"a"), plain(0, LARGE, b"b"), plain(9, b"c"), plain(1, b"d")]
    topic.commit(parts, [plain(0, LARGE)])
    assert topic.written == [(0, b"a"), (1, b"d")]
    assert [type(part.error).__name__ for part in parts] == [
        "NoneType",
        "MessageTooLarge",
        "InvalidMessage",
        "NoneType",
    ]
    topic.commit(only := [plain(0, LARGE)])
    assert isinstance(only[0].error, MessageTooLarge)


@pytest.mark.parametrize("builds", [1, 2])
def test_numbered_parts_follow_one_another_or_are_refused_or_repeated(builds: int) -> None:
    """Also when the log asks twice, because its connection broke after the first answer."""
    topic = Topic()
    first = [counted(0, 0, b"a", b"b"), counted(0, 2, b"c"), counted(0, 0, b"a", b"b"), counted(0, 5, b"gap")]
    topic.commit(first, [counted(1, 0, b"other"), counted(0, 3, b"d"), plain(1, b"no number")], builds=builds)
    assert sorted(topic.written) == [(0, b"a"), (0, b"b"), (0, b"c"), (0, b"d"), (1, b"no number"), (1, b"other")]
    assert [(part.offset, part.repeated, type(part.error)) for part in first] == [
        (0, None, type(None)),
        (2, None, type(None)),
        (UNKNOWN_OFFSET, 0, type(None)),
        (UNKNOWN_OFFSET, None, Gap),
    ]
    assert topic.counts["duplicates_by_source"] == 2
    again = [counted(0, 3, b"d")]
    topic.commit(again, builds=builds)
    assert again[0].repeated == 3
    assert len(topic.written) == 6


def test_nothing_is_written_behind_a_numbered_part_that_was_refused() -> None:
    topic = Topic()
    parts = [counted(0, 0, b"a"), counted(0, 1, LARGE), counted(0, 2, b"c")]
    topic.commit(parts)
    assert [type(part.error) for part in parts] == [type(None), MessageTooLarge, Gap]
    topic.commit([counted(0, 1, b"b"), counted(0, 2, b"c")])
    assert topic.written == [(0, b"a"), (0, b"b"), (0, b"c")]


def test_numbers_go_on_behind_messages_that_were_dropped_because_of_their_payloads() -> None:
    topic = Topic(structs.replace(DEFAULT_SETTINGS, deduplication="payload"))
    topic.commit([counted(0, 0, b"a", b"b")])
    dropped, part_of_it, next_one = [counted(0, 2, b"a", b"b")], [counted(0, 4, b"c", b"a")], [counted(0, 6, b"d")]
    topic.commit(dropped)
    assert (dropped[0].offset, dropped[0].error) == (UNKNOWN_OFFSET, None)
    topic.commit(part_of_it)
    assert part_of_it[0].offset == 2
    topic.commit(next_one)
    assert topic.written == [(0, b"a"), (0, b"b"), (0, b"c"), (0, b"d")]
    late = [counted(0, 4, b"c", b"a")]
    topic.commit(late)
    assert late[0].repeated == 4


def test_what_was_passed_over_is_forgotten_once_the_log_says_otherwise() -> None:
    topic, passed = Topic(), PassedNumbers()
    passed.put(("counted", "0"), None, 7)
    assert passed.last_seqno(topic.state, ("counted", "0")) == 7
    topic.commit([counted(0, 0, b"a")])
    assert passed.last_seqno(topic.state, ("counted", "0")) == 0
    passed.put(("counted", "0"), 0, 0)
    for number in range(20_000):
        passed.put((str(number), ""), None, number)
    assert passed.last_seqno(topic.state, ("0", "")) is None
    assert passed.last_seqno(topic.state, ("19999", "")) == 19_999


def test_parts_that_cannot_be_planned_are_refused_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rows: object, *args: object) -> object:
        if b"bad" in rows.column("value").to_pylist():  # type: ignore[attr-defined]
            raise MemoryError("no more")
        return plan(rows, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(decision, "plan", fails)
    topic = Topic()
    numbered, others = [counted(0, 0, b"bad")], [plain(1, b"good")]
    topic.commit(numbered, others)
    assert isinstance(numbered[0].error, MemoryError)
    assert topic.written == [(1, b"good")]

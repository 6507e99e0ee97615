"""Group commit: publishers that wait together share a frame, in a bounded queue, and nobody pays for another."""

from __future__ import annotations

import errno
import gc
import signal
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.publish import commit_builder as decision
from headrace.broker.publish.combiner import AT_ONCE_COMMITS, Leaders
from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.submission import Lane, Submission
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import Closed, DiskFull, InvalidMessage, OutcomeUnknown, OutOfMemory, Overloaded, TopicDeleted
from headrace.core.limits import FRAME_ROWS
from headrace.core.publish.plan import plan
from headrace.core.publish.receipts import WRITTEN, Receipts, all_duplicates
from headrace.core.publish.state import CommitKey
from tests.broker.background import (
    PATIENCE_SECONDS,
    Background,
    Collected,
    eventually,
    open_gated,
    publish_together,
    together,
    until_queued,
)
from tests.broker.messages import batch, content, everything, numbered, places, statuses
from tests.broker.sites import Site


def test_publishers_that_wait_together_share_a_frame(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", partitions=2)
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leader")))
    until_queued(broker, "orders", 1)
    followers = [Background(partial(broker.publish, "orders", batch(b"%d" % n, b"x"))) for n in range(10)]
    until_queued(broker, "orders", 21)
    store.gate.set()
    receipts = [leader.result(), *(follower.result() for follower in followers)]
    assert len({place for part in receipts for place in places(part)}) == 21
    assert broker.counters["commits_written"] == broker.counters["frames_written"] == 2
    assert broker.counters["messages_written"] == 21


def test_busy_threads_need_fewer_commits_than_messages(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", partitions=4)
    ready = threading.Barrier(17)
    store.gate.clear()

    def publish(thread: int) -> None:
        ready.wait(PATIENCE_SECONDS)
        for number in range(25):
            broker.publish("orders", batch(b"%d-%d" % (thread, number)))

    threads = [Background(partial(publish, thread)) for thread in range(16)]
    ready.wait(PATIENCE_SECONDS)
    until_queued(broker, "orders", 16)
    store.gate.set()
    for thread in threads:
        thread.result()
    assert len(everything(broker, "orders")) == 400
    assert broker.counters["commits_written"] < 400


def test_what_one_frame_cannot_hold_waits_for_the_next(site: Site) -> None:
    broker, store = open_gated(site, frame_rows=4)
    broker.create_topic("orders")
    store.gate.clear()
    publishers = []
    for number in range(6):
        publishers.append(Background(partial(broker.publish, "orders", batch(b"%d" % number, b"x"))))
        until_queued(broker, "orders", 2 * number + 2)
    store.gate.set()
    assert [places(publisher.result())[0] for publisher in publishers] == [(0, 2 * number) for number in range(6)]
    assert broker.counters["commits_written"] == 4


def test_a_bad_submission_in_a_group_fails_alone(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", partitions=2)
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leader")))
    until_queued(broker, "orders", 1)
    good = [Background(partial(broker.publish, "orders", batch(b"%d" % number, partition=1))) for number in range(3)]
    bad = [Background(partial(broker.publish, "orders", batch(b"bad", partition=2))) for _ in range(2)]
    numbers = Background(partial(broker.publish, "orders", numbered(b"n1", b"n2")))
    until_queued(broker, "orders", 8)
    store.gate.set()
    assert statuses(leader.result()) == ["written"]
    assert all(statuses(publisher.result()) == ["written"] for publisher in good)
    for publisher in bad:
        with pytest.raises(InvalidMessage, match="partition is 2"):
            publisher.result()
    assert statuses(numbers.result()) == ["written", "written"]
    assert everything(broker, "orders") == [b"0", b"1", b"2", b"leader", b"n1", b"n2"]
    assert broker.counters["commits_written"] == 2


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("key", [None, CommitKey("writer", 1)])
def test_a_submission_that_cannot_be_planned_fails_alone(
    site: Site, alike: bool, key: CommitKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_unless_bad(rows: pa.RecordBatch, *args: Any) -> Any:
        if b"bad" in rows.column("value").to_pylist():
            raise MemoryError("no more")
        return plan(rows, *args)

    monkeypatch.setattr(decision, "plan", plan_unless_bad)
    broker, store = open_gated(site)
    broker.create_topic("orders")
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leader")))
    until_queued(broker, "orders", 1)
    first = Background(lambda: broker.publish("orders", batch(b"a1", b"a2")))
    until_queued(broker, "orders", 3)
    bad = Background(lambda: broker.publish("orders", batch(b"bad"), key))
    until_queued(broker, "orders", 4)
    last = Background(lambda: broker.publish("orders", batch(b"b") if alike else numbered(b"b")))
    until_queued(broker, "orders", 5)
    store.gate.set()
    assert [places(publisher.result()) for publisher in (leader, first, last)] == [[(0, 0)], [(0, 1), (0, 2)], [(0, 3)]]
    with pytest.raises(MemoryError):
        bad.result()
    assert content(broker, "orders") == {0: [b"leader", b"a1", b"a2", b"b"]}
    with pytest.raises(MemoryError):
        broker.publish("orders", batch(b"bad"), key)
    assert statuses(broker.publish("orders", batch(b"good"), key)) == ["written"]


def test_submissions_that_can_only_be_planned_alone_all_get_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_one(rows: pa.RecordBatch, *args: Any) -> Any:
        if rows.num_rows > 1:
            raise MemoryError("no more")
        return plan(rows, *args)

    monkeypatch.setattr(decision, "plan", plan_one)
    broker, store = open_gated(site)
    broker.create_topic("orders")
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leader")))
    until_queued(broker, "orders", 1)
    followers = [Background(partial(broker.publish, "orders", batch(b"%d" % number))) for number in range(2)]
    until_queued(broker, "orders", 3)
    store.gate.set()
    assert statuses(leader.result()) == ["written"]
    for follower in followers:
        with pytest.raises(OutOfMemory):
            follower.result()
    assert content(broker, "orders") == {0: [b"leader"]}


def test_a_write_that_fails_is_an_error_for_everyone_in_it_and_for_nobody_else(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", message_bytes_max=10)
    store.gate.clear()
    store.error = DiskFull("orders", "no space")
    leader = Background(lambda: broker.publish("orders", batch(b"a")))
    until_queued(broker, "orders", 1)
    with pytest.raises(DiskFull):
        store.gate.set()
        leader.result()
    store.gate.clear()
    store.error = None
    first = Background(lambda: broker.publish("orders", batch(b"b")))
    until_queued(broker, "orders", 1)
    store.error = DiskFull("orders", "no space")
    followers = [Background(lambda: broker.publish("orders", batch(b"c"))) for _ in range(3)]
    refused = Background(lambda: broker.publish("orders", batch(b"much too long")))
    until_queued(broker, "orders", 5)
    store.gate.set()
    errors = []
    for publisher in (first, *followers):
        with pytest.raises(DiskFull) as caught:
            publisher.result()
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 4
    with pytest.raises(InvalidMessage):
        refused.result()
    store.error = None
    assert statuses(broker.publish("orders", batch(b"d"))) == ["written"]
    assert content(broker, "orders") == {0: [b"d"]}


def test_an_unexpected_failure_comes_out_as_it_is(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    store.error = OSError(errno.EIO, "the disk is on fire")
    with pytest.raises(OSError, match="on fire"):
        broker.publish("orders", batch(b"a"))
    store.error = None
    broker.publish("orders", batch(b"b"))


# The queue is bounded


def test_a_full_queue_makes_publishers_wait_and_then_tells_them_to_retry(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=5)
    broker.create_topic("orders", partitions=2)
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(*[b"in"] * 10)))
    until_queued(broker, "orders", 10)
    with pytest.raises(Overloaded) as caught:
        broker.publish("orders", batch(b"out"), timeout_seconds=0.02)
    overloaded = caught.value
    assert overloaded.retry
    assert (overloaded.limit, overloaded.waited_seconds) == (10, 0.02)
    assert "topic 'orders'" in overloaded.what
    store.gate.set()
    inside.result()
    assert everything(broker, "orders") == [b"in"] * 10
    assert statuses(broker.publish("orders", batch(b"out"))) == ["written"]


def test_the_time_limit_of_publishers_is_a_setting(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=1, publish_timeout_seconds=0.01)
    broker.create_topic("orders")
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"in"), timeout_seconds=60))
    until_queued(broker, "orders", 1)
    with pytest.raises(Overloaded):
        broker.publish("orders", batch(b"out"))
    store.gate.set()
    inside.result()


def test_the_queue_is_bounded_in_bytes_too(site: Site) -> None:
    broker, store = open_gated(site, queue_bytes=1000)
    broker.create_topic("orders")
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"x" * 900)))
    until_queued(broker, "orders", 1)
    with pytest.raises(Overloaded):
        broker.publish("orders", batch(b"y" * 900), timeout_seconds=0.0)
    store.gate.set()
    inside.result()


def test_those_that_wait_for_room_get_it_in_turn(site: Site) -> None:
    """A large submission is not kept out by small ones that come after it."""
    broker, store = open_gated(site, queue_messages_per_partition=4)
    broker.create_topic("orders")
    intake = broker.topics.find("orders").topic.intake
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"in", b"in")))
    until_queued(broker, "orders", 2)
    large = Background(lambda: broker.publish("orders", batch(*[b"large"] * 4)))
    eventually(lambda: intake.in_line == 1)
    small = Background(lambda: broker.publish("orders", batch(b"small")))
    eventually(lambda: intake.in_line == 2)
    store.gate.set()
    assert places(inside.result()) == [(0, 0), (0, 1)]
    assert places(large.result())[0] == (0, 2)
    assert places(small.result()) == [(0, 6)]


def test_a_submission_larger_than_the_queue_passes_when_it_is_empty(site: Site) -> None:
    broker = site.open(queue_messages_per_partition=2, queue_bytes=100)
    broker.create_topic("orders")
    assert len(broker.publish("orders", batch(*[b"x" * 50] * 20))) == 20


def test_more_partitions_make_more_room(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=2)
    broker.create_topic("orders")
    broker.alter_topic("orders", partitions=3)
    store.gate.clear()
    publishers = [
        Background(partial(broker.publish, "orders", batch(b"x", b"y"), timeout_seconds=0.0)) for _ in range(3)
    ]
    until_queued(broker, "orders", 6)
    with pytest.raises(Overloaded):
        broker.publish("orders", batch(b"z"), timeout_seconds=0.0)
    store.gate.set()
    for publisher in publishers:
        publisher.result()


def test_a_full_topic_does_not_hold_up_another(site: Site) -> None:
    broker = site.open(queue_messages_per_partition=1)
    broker.create_topic("stuck")
    broker.create_topic("free")
    stuck = broker.topics.find("stuck").topic
    held = threading.Event()

    def hold(submissions: Sequence[Submission]) -> None:
        assert held.wait(PATIENCE_SECONDS)
        stuck._commit(submissions)

    stuck.intake._commit = hold
    waiting = Background(lambda: broker.publish("stuck", batch(b"a")))
    until_queued(broker, "stuck", 1)
    assert statuses(broker.publish("free", batch(b"b"))) == ["written"]
    held.set()
    waiting.result()


def test_more_submissions_than_the_queue_holds_enter_one_after_another(site: Site) -> None:
    broker = site.open(queue_messages_per_partition=3)
    broker.create_topic("orders")
    outcomes = publish_together(broker, "orders", [batch(b"%d" % number) for number in range(80)])
    assert all(isinstance(outcome, Receipts) and statuses(outcome) == ["written"] for outcome in outcomes)
    assert content(broker, "orders") == {0: [b"%d" % number for number in range(80)]}


# Without a thread of their own


def submitted(
    intake: TopicIntake, sink: Collected, *values: bytes, account: str = "", lane: Lane | None = None
) -> list[bool]:
    """Whether there was space for each."""
    return [intake.submit(Submission([batch(value)], sink=sink, account=account, lane=lane)) for value in values]


def test_what_is_submitted_is_written_in_order_and_told(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    intake, sink = broker.topics.find("orders").topic.intake, Collected()
    store.gate.clear()
    submitted(intake, sink, b"first")
    until_queued(broker, "orders", 1)
    publisher = Background(lambda: broker.publish("orders", batch(b"with a thread")))
    until_queued(broker, "orders", 2)
    submitted(intake, sink, *(b"%d" % number for number in range(10)))
    store.gate.set()
    sink.has(11)
    publisher.result()
    assert [places(each.receipts) for each in sink.done if each.receipts] == [[(0, n)] for n in (0, *range(2, 12))]
    assert broker.counters["commits_written"] == 2
    assert intake.depth == 0


def test_what_is_submitted_to_a_full_queue_waits_in_line_or_is_withdrawn(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=2)
    broker.create_topic("orders")
    intake, sink = broker.topics.find("orders").topic.intake, Collected()
    store.gate.clear()
    assert submitted(intake, sink, b"in", b"in", b"line", b"line") == [True, True, False, False]
    late, gone = Submission([batch(b"late")], sink=sink), Submission([batch(b"gone")], sink=sink)
    for each in (late, gone):
        assert not intake.submit(each)
    error = intake.give_up(late, 1.5)
    assert error is not None and error.retry
    assert (error.limit, error.waited_seconds) == (2, 1.5)
    assert (intake.give_up(late, 1.5), intake.withdraw(gone), intake.withdraw(gone)) == (None, True, False)
    store.gate.set()
    sink.has(4)
    assert content(broker, "orders") == {0: [b"in", b"in", b"line", b"line"]}
    assert intake.depth == intake.in_line == 0


def test_what_waits_in_line_when_the_topic_ends_is_told_so(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=1)
    broker.create_topic("orders")
    intake, sink = broker.topics.find("orders").topic.intake, Collected()
    store.gate.clear()
    submitted(intake, sink, b"in", b"line", b"line")
    deleting = Background(lambda: broker.delete_topic("orders"))
    sink.has(2)
    assert [type(each.error) for each in sink.done] == [TopicDeleted, TopicDeleted]
    with pytest.raises(TopicDeleted):
        submitted(intake, sink, b"late")
    store.gate.set()
    deleting.result()
    sink.has(3)
    assert [each.error for each in sink.done[2:]] == [None]


def test_a_caller_with_half_of_the_queue_waits_while_others_wait(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=4)
    broker.create_topic("orders")
    intake, sink = broker.topics.find("orders").topic.intake, Collected()
    store.gate.clear()
    submitted(intake, sink, b"a0", b"a1", b"a2", b"a3", account="ann")
    submitted(intake, sink, b"a4", b"a5", b"a6", b"a7", account="ann")
    submitted(intake, sink, b"b0", b"b1", b"b2", account="ben")
    assert intake.in_line == 7
    taken = Submission([batch(*[b"x"] * 3)], account="cat", sink=sink)
    assert not intake.submit(taken)
    store.gate.set()
    sink.has(12)
    written = content(broker, "orders")[0]
    assert set(written[4:8]) == {b"a4", b"a5", b"b0", b"b1"}, "she gets half, and the other half is his"
    assert [value for value in written if value.startswith(b"a")] == [b"a%d" % number for number in range(8)]
    assert not intake._held


def test_one_that_another_thread_awaits_is_written_by_whoever_leads(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    intake = broker.topics.find("orders").topic.intake
    alone, behind, beside = (Submission([batch(value)]) for value in (b"alone", b"behind", b"beside"))
    intake.put(alone, 60)
    assert content(broker, "orders") == {0: []}, "nobody leads"
    outcome = intake.result(alone)
    assert isinstance(outcome, Receipts) and places(outcome) == [(0, 0)]
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leader")))
    until_queued(broker, "orders", 1)
    intake.put(behind, 60)
    intake.put(beside, 60)
    follower = Background(lambda: broker.publish("orders", batch(b"follower")))
    until_queued(broker, "orders", 4)
    store.gate.set()
    leader.result()
    follower.result()
    for submission, offset in ((behind, 2), (beside, 3)):
        outcome = intake.result(submission)
        assert isinstance(outcome, Receipts) and places(outcome) == [(0, offset)]


def test_closing_writes_what_nobody_awaits_yet(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    intake = broker.topics.find("orders").topic.intake
    submission = Submission([batch(b"put")])
    intake.put(submission, 60)
    broker.delete_topic("orders")
    assert isinstance(intake.result(submission), Receipts)


def test_one_that_is_put_waits_for_space(site: Site) -> None:
    broker = site.open(queue_messages_per_partition=1)
    broker.create_topic("orders")
    intake = broker.topics.find("orders").topic.intake
    first, second = Submission([batch(b"1")]), Submission([batch(b"2")])
    intake.put(first, 60)
    with pytest.raises(Overloaded):
        intake.put(Submission([batch(b"late")]), 0.01)
    putting = Background(lambda: intake.put(second, 60))
    eventually(lambda: intake.in_line == 1)
    for submission in (first, second):
        assert isinstance(intake.result(submission), Receipts)
    putting.result()
    assert content(broker, "orders") == {0: [b"1", b"2"]}


def test_nothing_is_written_behind_a_failure_in_a_lane_in_a_later_commit_either(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    intake, sink, lane = broker.topics.find("orders").topic.intake, Collected(), Lane()
    store.error = DiskFull("orders", "no space")
    submitted(intake, sink, b"failed", lane=lane)
    sink.has(1)
    store.error = None
    submitted(intake, sink, b"behind", lane=lane)
    submitted(intake, sink, b"other")
    sink.has(3)
    assert [type(each.error) for each in sink.done] == [DiskFull, DiskFull, type(None)]
    assert content(broker, "orders") == {0: [b"other"]}


def test_more_topics_than_threads_that_lead_take_turns() -> None:
    leaders, writes = Leaders(1), Writes()
    writes.gate.set()
    intakes = [TopicIntake("orders", writes, 1000, BrokerSettings(frame_rows=1), leaders) for _ in range(4)]
    sink = Collected()
    for _ in range(20):
        for intake in intakes:
            submitted(intake, sink, b"x")
    sink.has(80)
    assert all(each.receipts is not None for each in sink.done)
    for intake in intakes:
        intake.close(Closed("the broker"))
    leaders.close()


# Batches larger than a frame


def test_a_batch_of_more_rows_than_a_frame_holds_is_one_commit_of_several_frames(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    rows = 2 * FRAME_ROWS + 1
    values = pa.array(np.arange(rows).astype("S"), pa.binary())
    receipts = broker.publish("orders", pa.record_batch({"value": values}))
    assert np.array_equal(receipts.partition, np.arange(rows) % 2)
    assert np.array_equal(receipts.offset, np.arange(rows) // 2)
    assert (broker.counters["commits_written"], broker.counters["frames_written"]) == (1, 3)
    read = broker.fetch("orders", 1, 0, max_messages=1 << 20, max_bytes=256 << 20)
    assert read.column("value").equals(values.filter(pa.array(np.arange(rows) % 2 == 1)))


def test_a_batch_of_more_bytes_than_a_frame_holds_is_one_commit_of_several_frames(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="payload")
    sent = [b"%d" % number * 500_000 for number in range(10, 27)]
    receipts = broker.publish("orders", batch(*sent, sent[0], sent[-1]))
    assert receipts.written == len(sent)
    assert statuses(receipts)[-2:] == ["duplicate", "duplicate"]
    assert broker.counters["commits_written"] == 1
    assert broker.counters["frames_written"] > 1
    read = broker.fetch("orders", 0, 0, max_bytes=256 << 20)
    assert read.column("value").to_pylist() == sent


# Interrupts, which come to the main thread only


class Writes:
    """What a queue commits to, at the test's pace."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.groups: list[list[int]] = []
        self.interrupt: BaseException | None = None

    def __call__(self, submissions: Sequence[Submission]) -> None:
        self.begun.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.interrupt is not None:
            raise self.interrupt
        self.groups.append([submission.rows for submission in submissions])
        for submission in submissions:
            submission.receipts = all_duplicates(submission.rows, WRITTEN)


def intake_of(writes: Writes) -> TopicIntake:
    return TopicIntake("orders", writes, 1000, BrokerSettings(queue_bytes=1 << 20))


def submission_of(rows: int) -> Submission:
    return Submission([batch(*[b"x"] * rows)])


def interrupt_main_once(intake: TopicIntake, depth: int) -> Background[None]:
    """Send the main thread what Ctrl-C sends, once this many messages wait."""
    # An event loop that watched the signal in an earlier test leaves it restarting system calls.
    signal.siginterrupt(signal.SIGINT, True)

    def interrupt() -> None:
        eventually(lambda: intake.depth == depth)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    return Background(interrupt)


def test_an_interrupted_publisher_takes_its_submission_back() -> None:
    writes = Writes()
    intake = intake_of(writes)
    leader = Background(lambda: intake.publish(submission_of(1), 60))
    assert writes.begun.wait(PATIENCE_SECONDS)
    interrupting = interrupt_main_once(intake, depth=3)
    with pytest.raises(KeyboardInterrupt):
        intake.publish(submission_of(2), 60)
    interrupting.result()
    assert intake.depth == 1
    writes.gate.set()
    leader.result()
    intake.close(Closed("the broker"))
    assert writes.groups == [[1]]


def test_an_interrupted_publisher_that_was_handed_the_lead_passes_it_on() -> None:
    writes = Writes()
    intake = intake_of(writes)
    gone, mine, other = submission_of(1), submission_of(2), submission_of(3)
    leading = taken_together(intake, gone)
    for submission in (mine, other):
        come_in(intake, submission)
    with intake._lock:
        intake.forget([gone])
        intake._hand_over(leading)
    intake._wake_next(gone)
    assert mine.leads
    intake.abandon(mine)
    assert other.leads
    assert intake.depth == 3
    writes.gate.set()
    intake.wait(other)
    intake.close(Closed("the broker"))
    assert writes.groups == [[3]]


def taken_together(intake: TopicIntake, *submissions: Submission) -> Submission:
    """Let the first of these lead and take all; who leads."""
    for submission in submissions:
        come_in(intake, submission)
    intake.come(submissions[0])
    intake.take(intake._taken)
    return submissions[0]


def come_in(intake: TopicIntake, submission: Submission) -> None:
    """Into the queue, awaited by its thread."""
    with intake._lock:
        intake._come_in(submission)
        submission.is_awaited = True


def is_woken(submission: Submission) -> bool:
    return submission.decided.acquire(blocking=False)


def test_publishers_wake_one_another_and_the_last_passes_the_lead_on() -> None:
    intake = intake_of(Writes())
    first, second, waiting = submission_of(1), submission_of(2), submission_of(3)
    intake._hand_over(taken_together(intake, first, second))
    come_in(intake, waiting)
    assert [is_woken(submission) for submission in (first, second, waiting)] == [True, False, False]
    intake._wake_next(first)
    assert [is_woken(submission) for submission in (second, waiting)] == [True, False]
    intake._wake_next(second)
    assert waiting.leads
    assert is_woken(waiting)


def test_a_publisher_interrupted_while_it_was_written_is_not_waited_for() -> None:
    intake = intake_of(Writes())
    first, mine, last = submission_of(1), submission_of(2), submission_of(3)
    leading = taken_together(intake, first, mine, last)
    intake.abandon(mine)
    intake._hand_over(leading)
    intake._wake_next(first)
    assert [is_woken(submission) for submission in (first, mine, last)] == [True, False, True]
    intake._wake_next(last)
    intake.close(Closed("the broker"))


def test_a_leader_that_is_interrupted_outside_of_its_work_gives_up_for_all() -> None:
    intake = intake_of(Writes())
    mine, following, waiting = submission_of(1), submission_of(2), submission_of(3)
    leading = taken_together(intake, mine, following)
    come_in(intake, waiting)
    intake.abandon(leading)
    assert isinstance(following.outcome, OutcomeUnknown)
    assert [is_woken(submission) for submission in (following, waiting)] == [True, True]
    assert waiting.leads
    assert intake.depth == 3


def test_a_publisher_interrupted_before_it_is_woken_wakes_the_next_in_going() -> None:
    intake = intake_of(Writes())
    first, mine, last = submission_of(1), submission_of(2), submission_of(3)
    intake._hand_over(taken_together(intake, first, mine, last))
    intake.abandon(mine)
    intake.abandon(mine)
    assert [is_woken(submission) for submission in (first, mine, last)] == [True, False, True]


def test_the_last_publisher_passes_the_lead_on_once_although_it_is_interrupted() -> None:
    intake = intake_of(Writes())
    first, last, waiting, later = submission_of(1), submission_of(2), submission_of(3), submission_of(4)
    intake._hand_over(taken_together(intake, first, last))
    for submission in (waiting, later):
        come_in(intake, submission)
    intake.abandon(last)
    assert is_woken(waiting)
    intake._waiting.remove(waiting)
    intake._wake_next(last)
    assert not later.leads


def test_publishers_that_wait_long_for_each_other_are_woken_at_once_for_a_while() -> None:
    intake = intake_of(Writes())
    first, second = submission_of(1), submission_of(2)
    intake._hand_over(taken_together(intake, first, second))
    intake._waking_until = 0.0
    intake._wake_next(second)
    for _ in range(AT_ONCE_COMMITS):
        first, second, waiting = submission_of(1), submission_of(2), submission_of(3)
        leading = taken_together(intake, first, second)
        come_in(intake, waiting)
        intake._hand_over(leading)
        assert [is_woken(submission) for submission in (first, second, waiting)] == [True, True, True]
        assert waiting.leads
        intake.abandon(waiting)
    first, second = submission_of(1), submission_of(2)
    intake._hand_over(taken_together(intake, first, second))
    assert [is_woken(submission) for submission in (first, second)] == [True, False]


def test_an_interrupted_leader_hands_the_lead_over() -> None:
    writes = Writes()
    intake = intake_of(writes)
    writes.interrupt = KeyboardInterrupt()
    interrupted = Background(lambda: intake.publish(submission_of(1), 60))
    eventually(lambda: intake.depth == 1)
    next_one = Background(lambda: intake.publish(submission_of(2), 60))
    eventually(lambda: intake.depth == 3)
    writes.gate.set()
    with pytest.raises(KeyboardInterrupt):
        interrupted.result()
    with pytest.raises(KeyboardInterrupt):
        next_one.result()
    writes.interrupt = None
    assert len(intake.publish(submission_of(3), 60)) == 3


def test_a_follower_of_an_interrupted_leader_gets_an_unknown_outcome() -> None:
    writes = Writes()
    intake = intake_of(writes)
    leading, following = submission_of(1), submission_of(1)
    for submission in (leading, following):
        come_in(intake, submission)
    intake.come(leading)
    writes.interrupt = KeyboardInterrupt()
    writes.gate.set()
    with pytest.raises(KeyboardInterrupt):
        intake.wait(leading)
    assert isinstance(following.outcome, OutcomeUnknown)
    assert following.outcome.topic == "orders"
    assert intake.depth == 0


def test_publishing_waits_for_nobody_once_the_queue_is_closed() -> None:
    writes = Writes()
    intake = TopicIntake("orders", writes, 1, BrokerSettings(queue_bytes=1 << 20))
    leader = Background(lambda: intake.publish(submission_of(1), 60))
    eventually(lambda: intake.depth == 1)
    waiting = Background(lambda: intake.publish(submission_of(1), 60))
    eventually(lambda: intake.in_line == 1)
    closing = Background(lambda: intake.close(Closed("the broker")))
    with pytest.raises(Closed):
        waiting.result()
    assert not closing.is_done
    writes.gate.set()
    leader.result()
    closing.result()
    with pytest.raises(Closed):
        intake.publish(submission_of(1), 60)


@pytest.mark.parametrize("frame_rows", [1, 3, 1000])
def test_many_threads_through_a_real_queue_are_all_answered(site: Site, frame_rows: int) -> None:
    broker = site.open(frame_rows=frame_rows)
    broker.create_topic("orders", partitions=2)
    intake, sink = broker.topics.find("orders").topic.intake, Collected()

    def publish(thread: int) -> None:
        for number in range(10):
            if number % 3:
                broker.publish("orders", batch(b"%d" % thread))
            else:
                submitted(intake, sink, *[b"%d" % thread] * 3)

    together([partial(publish, thread) for thread in range(12)])
    sink.has(12 * 4 * 3)
    assert len(everything(broker, "orders")) == 12 * (4 * 3 + 6)


def test_what_was_written_is_not_kept_until_a_garbage_collection(site: Site) -> None:
    broker, _ = open_gated(site)
    broker.create_topic("orders")
    broker.publish("orders", batch(b"first"))
    messages = batch(b"x" * 1000)
    gone = weakref.ref(messages)
    gc.disable()
    try:
        broker.publish("orders", messages)
        del messages
        assert gone() is None
    finally:
        gc.enable()

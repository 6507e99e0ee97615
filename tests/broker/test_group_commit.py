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
from headrace.broker.publish.combiner import AT_ONCE_COMMITS
from headrace.broker.publish.commit_queue import CommitQueue, Request
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import Closed, DiskFull, InvalidMessage, OutcomeUnknown, OutOfMemory, Overloaded, StorageError
from headrace.core.limits import FRAME_ROWS
from headrace.core.publish.plan import plan
from headrace.core.publish.receipts import WRITTEN, all_duplicates
from headrace.core.publish.state import CommitKey
from tests.broker.background import PATIENCE_SECONDS, Background, eventually, open_gated, together, until_queued
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


def test_a_bad_request_in_a_group_fails_alone(site: Site) -> None:
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
def test_a_request_that_cannot_be_planned_fails_alone(
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


def test_requests_that_can_only_be_planned_alone_all_get_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A large request is not kept out by small ones that come after it."""
    broker, store = open_gated(site, queue_messages_per_partition=4)
    broker.create_topic("orders")
    line = broker.topics.find("orders").topic.queue._line
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"in", b"in")))
    until_queued(broker, "orders", 2)
    large = Background(lambda: broker.publish("orders", batch(*[b"large"] * 4)))
    eventually(lambda: len(line) == 1)
    small = Background(lambda: broker.publish("orders", batch(b"small")))
    eventually(lambda: len(line) == 2)
    store.gate.set()
    assert places(inside.result()) == [(0, 0), (0, 1)]
    assert places(large.result())[0] == (0, 2)
    assert places(small.result()) == [(0, 6)]


def test_a_request_larger_than_the_queue_passes_when_it_is_empty(site: Site) -> None:
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

    def hold(requests: Sequence[Request]) -> None:
        assert held.wait(PATIENCE_SECONDS)
        stuck._commit(requests)

    stuck.queue._commit = hold
    waiting = Background(lambda: broker.publish("stuck", batch(b"a")))
    until_queued(broker, "stuck", 1)
    assert statuses(broker.publish("free", batch(b"b"))) == ["written"]
    held.set()
    waiting.result()


def test_more_requests_than_the_queue_holds_enter_one_after_another(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=3)
    broker.create_topic("orders")
    calls = [lambda: broker.publish_many("orders", [batch(b"%d" % number) for number in range(20)])] * 4
    assert all(statuses(receipts) == ["written"] for part in together(calls) for receipts in part)  # type: ignore[arg-type]
    assert len(everything(broker, "orders")) == 80
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"in", b"in")))
    until_queued(broker, "orders", 2)
    many = Background(lambda: broker.publish_many("orders", [batch(b"a"), batch(b"b"), batch(b"c")], 0.01))
    until_queued(broker, "orders", 3)
    store.gate.set()
    inside.result()
    assert [len(receipts) for receipts in many.result()] == [1, 1, 1]  # type: ignore[arg-type]


def test_what_did_not_get_in_with_many_gets_an_error(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=2)
    broker.create_topic("orders")
    store.gate.clear()
    inside = Background(lambda: broker.publish("orders", batch(b"in", b"in")))
    until_queued(broker, "orders", 2)
    outcomes = broker.publish_many("orders", [batch(b"a"), batch(b"b")], timeout_seconds=0.0)
    assert [type(outcome) for outcome in outcomes] == [Overloaded, Overloaded]
    store.gate.set()
    inside.result()
    assert content(broker, "orders") == {0: [b"in", b"in"]}


def test_of_many_those_that_were_written_before_the_end_keep_their_receipts(site: Site) -> None:
    broker, store = open_gated(site, queue_messages_per_partition=2)
    broker.create_topic("orders")
    queue = broker.topics.find("orders").topic.queue
    store.gate.clear()
    many = Background(lambda: broker.publish_many("orders", [batch(b"a"), batch(b"b"), batch(b"c")]))
    until_queued(broker, "orders", 2)
    deleting = Background(lambda: broker.delete_topic("orders"))
    eventually(lambda: queue._closed is not None)
    store.gate.set()
    assert [type(outcome).__name__ for outcome in many.result()] == ["Receipts", "Receipts", "TopicDeleted"]
    deleting.result()


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

    def __call__(self, requests: Sequence[Request]) -> None:
        self.begun.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.interrupt is not None:
            raise self.interrupt
        self.groups.append([request.rows for request in requests])
        for request in requests:
            request.receipts = all_duplicates(request.rows, WRITTEN)


def queue_of(writes: Writes) -> CommitQueue:
    return CommitQueue("orders", writes, 100, BrokerSettings(queue_bytes=1 << 20))


def request_of(rows: int) -> Request:
    return Request([batch(*[b"x"] * rows)])


def interrupt_main_once(condition_queue: CommitQueue, depth: int) -> Background[None]:
    """Send the main thread what Ctrl-C sends, once this many messages wait."""
    # An event loop that watched the signal in an earlier test leaves it restarting system calls.
    signal.siginterrupt(signal.SIGINT, True)

    def interrupt() -> None:
        eventually(lambda: condition_queue.depth == depth)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    return Background(interrupt)


def test_an_interrupted_publisher_takes_its_request_back() -> None:
    writes = Writes()
    queue = queue_of(writes)
    leader = Background(lambda: queue.publish(request_of(1), 60))
    assert writes.begun.wait(PATIENCE_SECONDS)
    interrupting = interrupt_main_once(queue, depth=3)
    with pytest.raises(KeyboardInterrupt):
        queue.publish(request_of(2), 60)
    interrupting.result()
    assert queue.depth == 1
    writes.gate.set()
    leader.result()
    queue.close(Closed("the broker"))
    assert writes.groups == [[1]]


def test_an_interrupted_publisher_that_was_handed_the_lead_passes_it_on() -> None:
    writes = Writes()
    queue = queue_of(writes)
    gone, mine, other = request_of(1), request_of(2), request_of(3)
    leading = taken_together(queue, gone)
    for request in (mine, other):
        queue._append(request, [])
    with queue._lock:
        queue.forget([gone])
        queue._hand_over(leading)
    queue._wake_next(gone)
    assert mine.leads
    queue.abandon([mine])
    assert other.leads
    assert queue.depth == 3
    writes.gate.set()
    queue.wait([other])
    queue.close(Closed("the broker"))
    assert writes.groups == [[3]]


def taken_together(queue: CommitQueue, *requests: Request) -> Request:
    """Let the first of these lead and take all; who leads."""
    for request in requests:
        queue._append(request, [])
    queue.come(requests[0])
    queue.take(queue._taken)
    return requests[0]


def is_woken(request: Request) -> bool:
    return request.decided.acquire(blocking=False)


def test_publishers_wake_one_another_and_the_last_passes_the_lead_on() -> None:
    queue = queue_of(Writes())
    first, second, waiting = request_of(1), request_of(2), request_of(3)
    queue._hand_over(taken_together(queue, first, second))
    queue._append(waiting, [])
    assert [is_woken(request) for request in (first, second, waiting)] == [True, False, False]
    queue._wake_next(first)
    assert [is_woken(request) for request in (second, waiting)] == [True, False]
    queue._wake_next(second)
    assert waiting.leads
    assert is_woken(waiting)


def test_a_publisher_interrupted_while_it_was_written_is_not_waited_for() -> None:
    queue = queue_of(Writes())
    first, mine, last = request_of(1), request_of(2), request_of(3)
    leading = taken_together(queue, first, mine, last)
    queue.abandon([mine])
    queue._hand_over(leading)
    queue._wake_next(first)
    assert [is_woken(request) for request in (first, mine, last)] == [True, False, True]
    queue._wake_next(last)
    queue.close(Closed("the broker"))


def test_a_leader_that_is_interrupted_outside_of_its_work_gives_up_for_all() -> None:
    queue = queue_of(Writes())
    mine, following, waiting = request_of(1), request_of(2), request_of(3)
    leading = taken_together(queue, mine, following)
    queue._append(waiting, [])
    queue.abandon([leading])
    assert isinstance(following.outcome, OutcomeUnknown)
    assert [is_woken(request) for request in (following, waiting)] == [True, True]
    assert waiting.leads
    assert queue.depth == 3


def test_a_publisher_interrupted_before_it_is_woken_wakes_the_next_in_going() -> None:
    queue = queue_of(Writes())
    first, mine, last = request_of(1), request_of(2), request_of(3)
    queue._hand_over(taken_together(queue, first, mine, last))
    queue.abandon([mine])
    queue.abandon([mine])
    assert [is_woken(request) for request in (first, mine, last)] == [True, False, True]


def test_the_last_publisher_passes_the_lead_on_once_although_it_is_interrupted() -> None:
    queue = queue_of(Writes())
    first, last, waiting, later = request_of(1), request_of(2), request_of(3), request_of(4)
    queue._hand_over(taken_together(queue, first, last))
    queue._waiting.extend([waiting, later])
    queue.abandon([last])
    assert is_woken(waiting)
    queue._waiting.remove(waiting)
    queue._wake_next(last)
    assert not later.leads


def test_publishers_that_wait_long_for_each_other_are_woken_at_once_for_a_while() -> None:
    queue = queue_of(Writes())
    first, second = request_of(1), request_of(2)
    queue._hand_over(taken_together(queue, first, second))
    queue._waking_until = 0.0
    queue._wake_next(second)
    for _ in range(AT_ONCE_COMMITS):
        first, second, waiting = request_of(1), request_of(2), request_of(3)
        leading = taken_together(queue, first, second)
        queue._append(waiting, [])
        queue._hand_over(leading)
        assert [is_woken(request) for request in (first, second, waiting)] == [True, True, True]
        assert waiting.leads
        queue.abandon([waiting])
    first, second = request_of(1), request_of(2)
    queue._hand_over(taken_together(queue, first, second))
    assert [is_woken(request) for request in (first, second)] == [True, False]


def test_an_interrupted_leader_hands_the_lead_over() -> None:
    writes = Writes()
    queue = queue_of(writes)
    writes.interrupt = KeyboardInterrupt()
    interrupted = Background(lambda: queue.publish(request_of(1), 60))
    eventually(lambda: queue.depth == 1)
    next_one = Background(lambda: queue.publish(request_of(2), 60))
    eventually(lambda: queue.depth == 3)
    writes.gate.set()
    with pytest.raises(KeyboardInterrupt):
        interrupted.result()
    with pytest.raises(KeyboardInterrupt):
        next_one.result()
    writes.interrupt = None
    assert len(queue.publish(request_of(3), 60)) == 3


def test_a_follower_of_an_interrupted_leader_gets_an_unknown_outcome() -> None:
    writes = Writes()
    queue = queue_of(writes)
    leading, following = request_of(1), request_of(1)
    for request in (leading, following):
        queue._append(request, [])
    queue.come(leading)
    writes.interrupt = KeyboardInterrupt()
    writes.gate.set()
    with pytest.raises(KeyboardInterrupt):
        queue.wait([leading])
    assert isinstance(following.outcome, OutcomeUnknown)
    assert following.outcome.topic == "orders"
    assert queue.depth == 0


def test_publishing_waits_for_nobody_once_the_queue_is_closed() -> None:
    writes = Writes()
    queue = CommitQueue("orders", writes, 1, BrokerSettings(queue_bytes=1 << 20))
    leader = Background(lambda: queue.publish(request_of(1), 60))
    eventually(lambda: queue.depth == 1)
    waiting = Background(lambda: queue.publish(request_of(1), 60))
    eventually(lambda: len(queue._line) == 1)
    closing = Background(lambda: queue.close(Closed("the broker")))
    with pytest.raises(Closed):
        waiting.result()
    assert not closing.is_done
    writes.gate.set()
    leader.result()
    closing.result()
    with pytest.raises(Closed):
        queue.publish(request_of(1), 60)


@pytest.mark.parametrize("frame_rows", [1, 3, 1000])
def test_many_threads_through_a_real_queue_are_all_answered(site: Site, frame_rows: int) -> None:
    broker = site.open(frame_rows=frame_rows)
    broker.create_topic("orders", partitions=2)

    def publish(thread: int) -> None:
        for number in range(10):
            if number % 3:
                broker.publish("orders", batch(b"%d" % thread))
            else:
                outcomes = broker.publish_many("orders", [batch(b"%d" % thread)] * 3)
                assert not any(isinstance(outcome, StorageError) for outcome in outcomes)

    together([partial(publish, thread) for thread in range(12)])
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

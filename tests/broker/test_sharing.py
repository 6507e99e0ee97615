"""Several servers on one store: what one does the others know, and whoever waits at one hears of the other."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.broker.clock import SystemClock
from headrace.broker.queue_api.ordered_reader import Taken
from headrace.core.errors import (
    GroupNotFound,
    GroupSizeConflict,
    MemberNotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    PartitionNotOwned,
    PartitionsCannotShrink,
    ProducerFenced,
    StaleGeneration,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
)
from headrace.core.limits import MICROSECONDS
from tests.broker.background import PATIENCE_SECONDS, Background, eventually, together, until_waiting
from tests.broker.messages import batch, content, read_as_member, values_of
from tests.broker.sites import Site


@pytest.fixture
def two(shared_site: Site) -> tuple[Broker, Broker]:
    return shared_site.open(), shared_site.open()


# Topics


def test_a_topic_made_by_one_exists_for_the_other_at_once(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("Orders", partitions=2)
    assert second.describe_topic("orders").partitions == 2
    assert second.list_topics() == ["Orders"]
    assert second.create_topic("ORDERS", partitions=3).partitions == 3
    assert first.alter_topic("orders", retention_seconds=9).partitions == 3
    with pytest.raises(PartitionsCannotShrink):
        first.alter_topic("orders", partitions=2)
    assert second.describe_topic("orders").settings.retention_seconds == 9


def test_messages_deleted_by_one_are_gone_for_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    first.publish("orders", batch(b"a", b"b", b"c"))
    assert content(second, "orders") == {0: [b"a", b"b", b"c"]}
    assert first.delete_messages("orders", {0: 2}) == {0: 2}
    assert second.offsets("orders") == {0: (2, 3)}
    eventually(lambda: _is_gone(second, 1))
    assert second.delete_messages("orders", {0: 1}) == {0: 2}


def _is_gone(broker: Broker, offset: int) -> bool:
    try:
        broker.fetch("orders", 0, offset)
    except OffsetOutOfRange as error:
        return error.start == 2
    return False


def test_of_many_that_make_a_new_topic_at_once_one_does(shared_site: Site) -> None:
    brokers = [shared_site.open() for _ in range(3)]

    def make(broker: Broker) -> bool:
        try:
            broker.registrations.create_topic("orders")
        except TopicExists:
            return False
        return True

    made = together([lambda broker=broker: make(broker) for broker in brokers])  # type: ignore[misc]
    assert sorted(made) == [False, False, True]
    assert len({broker.describe_topic("orders").id for broker in brokers}) == 1


def test_a_topic_deleted_by_one_ends_for_all_who_wait_at_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    reading = Background(lambda: second.fetch("orders", 0, 0, wait_seconds=60))
    until_waiting(second, "orders")
    first.delete_topic("orders")
    with pytest.raises(TopicDeleted):
        reading.result()
    # Who waited is woken a moment before the topic is known no more.
    with pytest.raises((TopicDeleted, TopicNotFound)):
        second.publish("orders", batch(b"a"))
    with pytest.raises(TopicNotFound):
        second.delete_topic("orders")


def test_maintenance_is_quiet_about_a_topic_that_another_server_has_just_deleted(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = two
    # The word is lost, so that maintenance meets the topic before the server knows that it is deleted.
    monkeypatch.setattr(first.store.signals, "announce", lambda word: None)
    tasks = {getattr(task, "__name__", ""): task for task in second.maintenance._tasks}
    for name in ("expire_members", "drop_outlived", "seal_segments", "clean_windows", "forget_sources"):
        first.create_topic("orders", retention_seconds=1, deduplication="payload")
        second.publish("orders", batch(b"a"))
        opened = second.topics.find("orders")
        first.delete_topic("orders")
        assert opened.topic.ended is None
        tasks[name]()
        second.maintenance.run_all()
        assert isinstance(opened.topic.ended, TopicDeleted), name
    assert caplog.records == []


def test_a_topic_whose_tables_cannot_be_dropped_is_deleted_for_all(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    first.create_topic("orders")
    reading = Background(lambda: second.fetch("orders", 0, 0, wait_seconds=60))
    until_waiting(second, "orders")

    def fail(topic_id: int) -> None:
        raise StoreUnavailable("here", "somebody reads it")

    monkeypatch.setattr(first.store, "delete_log", fail)
    with pytest.raises(StoreUnavailable):
        first.delete_topic("orders")
    with pytest.raises(TopicDeleted):
        reading.result()
    assert first.list_topics() == second.list_topics() == []


def test_a_deletion_that_lost_its_answer_leaves_no_tables(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = two[0]
    broker.create_topic("orders")
    remove, delete = broker.store.catalog.remove_topic, broker.store.delete_log
    deleted: list[int] = []

    def delete_log(topic_id: int) -> None:
        deleted.append(topic_id)
        delete(topic_id)

    monkeypatch.setattr(broker.store.catalog, "remove_topic", lambda topic_id: remove(topic_id) and remove(topic_id))
    monkeypatch.setattr(broker.store, "delete_log", delete_log)
    with pytest.raises(TopicNotFound):
        broker.delete_topic("orders")
    assert len(deleted) == 1
    assert broker.list_topics() == []


def test_a_topic_recreated_under_its_old_name_is_the_new_one(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    second.publish("orders", batch(b"old"))
    old = second.reader("orders")
    first.delete_topic("orders")
    first.create_topic("orders", partitions=2)
    second.alter_topic("orders", partitions=2)
    second.publish("orders", batch(b"new"))
    assert content(first, "orders") == content(second, "orders") == {0: [b"new"], 1: []}
    with pytest.raises(TopicDeleted):
        old.read({0: 0}, 1, 1)


# Messages


def test_a_reader_that_waits_at_one_is_woken_by_a_commit_at_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", partitions=2)
    reading = Background(lambda: second.fetch("orders", 1, 0, wait_seconds=60))
    until_waiting(second, "orders")
    first.publish("orders", batch(b"a", partition=1))
    assert values_of(reading.result()) == [b"a"]


def test_a_lost_word_only_delays(two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two
    first.create_topic("orders")
    monkeypatch.setattr(first.store.signals, "announce", lambda word: None)
    reading = Background(lambda: second.fetch("orders", 0, 0, wait_seconds=60))
    until_waiting(second, "orders")
    first.publish("orders", batch(b"a"))
    second.maintenance.run_all()
    assert values_of(reading.result()) == [b"a"]


def test_a_member_at_one_gets_what_is_published_at_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", partitions=2)
    second.register_group("orders", "g")
    for number in range(10):
        first.publish("orders", batch(b"%d" % number))
    got: list[bytes] = []

    def has_all() -> bool:
        got.extend(read_as_member(second, "orders", "g"))
        return len(got) >= 10

    eventually(has_all)
    assert sorted(got) == [b"%d" % number for number in range(10)]
    assert first.committed("orders", "g") == {0: 5, 1: 5}


def test_links_numbers_and_commit_keys_agree(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", partitions=3)
    places = {
        int(broker.publish("orders", batch(b"%d" % seqno, producer_id="p", seqno=seqno)).partition[0])
        for seqno, broker in enumerate((first, second, first, second), 1)
    }
    assert len(places) == 1
    assert second.publish("orders", batch(b"again", producer_id="p", seqno=3)).written == 0
    assert first.last_seqno("orders", "p") == second.last_seqno("orders", "p") == 4


def test_payloads_repeat_in_no_topic_of_the_store_through_any_server(two: tuple[Broker, Broker]) -> None:
    for broker, topic in zip(two, ("one", "two"), strict=True):
        broker.create_topic(topic, deduplication="payload", deduplication_scope="store")

    def publish(broker: Broker, topic: str) -> int:
        return sum(broker.publish(topic, batch(b"%d" % number)).written for number in range(10))

    pairs = [(broker, topic) for broker in two for topic in ("one", "two")]
    written = together([lambda pair=pair: publish(*pair) for pair in pairs])  # type: ignore[misc]
    assert sum(written) == 10


def test_a_topic_that_another_server_deleted_keeps_no_other_from_publishing(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    for topic in ("one", "two"):
        first.create_topic(topic, deduplication="payload", deduplication_scope="store")
        second.publish(topic, batch(topic.encode()))
    # The word is lost.
    monkeypatch.setattr(first.store.signals, "announce", lambda word: None)
    first.delete_topic("two")
    assert second.publish("one", batch(b"more")).written == 1


# Producers


def test_a_producer_opened_at_one_fences_off_that_of_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    old = first.open_producer("orders", "till")
    rows = batch(b"a", producer_id="till", seqno=1)
    assert second.publish_as("orders", rows, "till", "", old.epoch).written == 1
    new = second.open_producer("orders", "till")
    assert (new.last_seqno, new.epoch > old.epoch) == (1, True)
    late = batch(b"b", producer_id="till", seqno=2)
    for broker in two:
        with pytest.raises(ProducerFenced) as caught:
            broker.publish_as("orders", late, "till", "", old.epoch)
        assert (caught.value.epoch, caught.value.current) == (old.epoch, new.epoch)
        with pytest.raises(ProducerFenced):
            broker.open_producer("orders", "till", epoch=old.epoch)
    assert first.open_producer("orders", "till", epoch=new.epoch).epoch == new.epoch
    assert first.publish_as("orders", late, "till", "", new.epoch).written == 1
    assert first.open_producer("orders", "till", "other").last_seqno is None


def test_of_a_fenced_producer_and_others_that_commit_together_only_it_is_refused(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    old = first.open_producer("orders", "till")
    second.open_producer("orders", "till")

    def publish(number: int) -> int:
        if number:
            return first.publish("orders", batch(b"%d" % number)).written
        with pytest.raises(ProducerFenced):
            first.publish_as("orders", batch(b"x", producer_id="till", seqno=1), "till", "", old.epoch)
        return 0

    assert sum(together([lambda number=number: publish(number) for number in range(8)])) == 7  # type: ignore[misc]
    assert sorted(content(second, "orders")[0]) == [b"%d" % number for number in range(1, 8)]


def test_a_producer_whose_epoch_was_forgotten_is_taken_at_its_word(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    opened = first.open_producer("orders", "till")
    assert second.store.catalog.forget_producers(0) == 1
    second.maintenance.run_all()
    assert first.publish_as("orders", batch(b"a", producer_id="till", seqno=1), "till", "", opened.epoch).written == 1
    with pytest.raises(ProducerFenced):
        second.publish_as("orders", batch(b"b", producer_id="till", seqno=2), "till", "", opened.epoch - 1)


# Groups


def test_a_member_heartbeats_at_one_and_commits_at_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", partitions=2)
    first.publish("orders", batch(b"a", b"b", b"c", b"d"))
    ann = first.join_group("orders", "g", "ann")
    second.commit_offsets("orders", "g", {0: 1, 1: 2}, "ann", ann.generation)
    second.join_group("orders", "g", "bob")
    told = first.heartbeat("orders", "g", "ann")
    assert (told.partitions, told.revoking) == ([0], [1])
    second.commit_offsets("orders", "g", {1: 2}, "ann", ann.generation)
    assert second.heartbeat("orders", "g", "ann", told.generation, [0]).revoking == []
    assert first.heartbeat("orders", "g", "bob").partitions == [1]
    assert first.commit_offsets("orders", "g", {0: 1, 1: 1}, "ann", ann.generation, partial=True).refused == [1]
    with pytest.raises(PartitionNotOwned):
        first.commit_offsets("orders", "g", {1: 1}, "ann", ann.generation)
    first.leave_group("orders", "g", "bob")
    # What another server did is known a moment later; what is asked of the store is known at once.
    eventually(lambda: second.heartbeat("orders", "g", "ann").partitions == [0, 1])
    with pytest.raises(MemberNotFound):
        second.heartbeat("orders", "g", "bob")
    assert first.committed("orders", "g") == second.committed("orders", "g") == {0: 1, 1: 2}


def test_a_silent_member_is_taken_out_by_whichever_server_looks(shared_site: Site) -> None:
    first, second = shared_site.open(), shared_site.open()
    first.create_topic("orders", partitions=2)
    first.join_group("orders", "g", "ann", session_timeout_seconds=10)
    first.join_group("orders", "g", "bob", session_timeout_seconds=30)
    shared_site.clock.step(20)
    second.list_topics()
    together([first.maintenance.run_all, second.maintenance.run_all])
    assert first.describe_group("orders", "g").members == {"bob": [0, 1]}
    assert first.counters["members_expired"] + second.counters["members_expired"] == 1


def test_a_member_that_waits_at_one_hears_of_a_rebalance_at_the_other(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", partitions=2)
    ann = first.join_group("orders", "g", "ann")
    moved = threading.Event()
    with first.reader("orders").watching(moved.set):
        reader = first.reader("orders")
        assert reader.read_as_member("g", "ann", ann.generation, {}, 10, 1_000).generation == ann.generation
        moved.clear()
        second.join_group("orders", "g", "bob")
        assert moved.wait(60)
        assert reader.has_moved("g", ann.generation)
    with pytest.raises(StaleGeneration):
        reader.read_as_member("g", "ann", ann.generation, {}, 10, 1_000)


def test_groups_are_moved_and_deleted_for_all(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    first.publish("orders", batch(b"a", b"b", b"c"))
    first.register_group("orders", "g", consumers=1, read_from="latest")
    assert second.committed("orders", "g") == {0: 3}
    second.seek("orders", "g", {0: 1})
    assert first.describe_group("orders", "g").progress[0].position == 1
    second.publish("orders", batch(b"d"))
    first.commit_offsets("orders", "g", {0: 4})
    with pytest.raises(OffsetOutOfRange):
        first.commit_offsets("orders", "g", {0: 5})
    second.delete_group("orders", "g")
    with pytest.raises(GroupNotFound):
        first.commit_offsets("orders", "g", {0: 4})
    assert first.list_groups("orders") == []


def test_an_important_group_of_one_holds_what_the_other_would_drop(shared_site: Site) -> None:
    first, second = shared_site.open(), shared_site.open()
    first.create_topic("orders", retention_seconds=1)
    first.register_group("orders", "g", important=True)
    for number in range(12):
        first.publish("orders", batch(b"%d" % number))
    shared_site.clock.step(100)
    second.commit_offsets("orders", "g", {0: 4})
    second.maintenance.run_all()
    start, end = first.offsets("orders")[0]
    assert 0 < start <= 4 and end == 12
    first.seek("orders", "g", {0: start})
    second.maintenance.run_all()
    assert first.offsets("orders")[0] == (start, 12)


def test_two_servers_that_read_for_one_consumer_of_the_queue_api_give_each_message_once(
    two: tuple[Broker, Broker],
) -> None:
    first, second = two
    first.registrations.create_topic("orders", 2)
    consumer = first.registrations.register_consumer("orders")
    producer = second.registrations.register_producer("orders")
    first.registrations.check_producer("orders", producer)
    values = [b"%02d" % number for number in range(30)]
    for value in values:
        second.publish("orders", batch(value))

    def read(broker: Broker) -> list[bytes]:
        got = []
        while (taken := broker.registrations.consume("orders", consumer)) is not None:
            got.append(taken.value or b"")
        return got

    parts = together([lambda broker=broker: read(broker) for broker in (*two, *two)])  # type: ignore[misc]
    assert sorted(value for part in parts for value in part) == values
    assert all(part == sorted(part) for part in parts)
    assert [broker.registrations.size("orders", consumer) for broker in two] == [0, 0]


@pytest.mark.parametrize("method", ["change_group", "advance"])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_message_that_may_have_been_given_to_nobody_is_said_to_be(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch, is_told: bool, method: str
) -> None:
    """The database lost the answer to COMMIT: the change is made again, and moves nothing; or it cannot be reached."""
    broker = two[0]
    broker.create_topic("orders")
    # The first offset of a group is stored in one way, and changed in another.
    values = [b"a", b"b"] if method == "change_group" else [b"first", b"a", b"b"]
    broker.publish("orders", batch(*values))
    consumer = broker.registrations.register_consumer("orders")
    for _ in values[2:]:
        broker.registrations.consume("orders", consumer)
    change = getattr(broker.store.catalog, method)

    def change_and_lose_the_answer(*arguments: Any) -> Any:
        change(*arguments)
        if not is_told:
            raise StoreUnavailable("here", "no connection")
        return change(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(broker.store.catalog, method, change_and_lose_the_answer)
        with pytest.raises(OutcomeUnknown):
            broker.registrations.consume("orders", consumer)
    assert broker.registrations.consume("orders", consumer) == Taken(b"b", None, len(values) - 1)


# Offsets


def held_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[list[str]]]:
    """Commits of offsets wait for an event; the groups of each transaction."""
    gate, groups = threading.Event(), list[list[str]]()
    raise_offsets = broker.store.catalog.raise_offsets

    def wait(topic_id: int, names: list[str], decide: Any) -> None:
        groups.append(names)
        assert gate.wait(PATIENCE_SECONDS)
        raise_offsets(topic_id, names, decide)

    monkeypatch.setattr(broker.store.catalog, "raise_offsets", wait)
    return gate, groups


def until_committing(broker: Broker, commits: int) -> None:
    book: Any = broker.topics.find("orders").groups._store
    eventually(lambda: len(book._commits._waiting) == commits)


def test_offsets_that_are_committed_at_the_same_time_share_a_transaction(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, other = two
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(*[b"x"] * 20))
    for name in ("a", "b", "c"):
        broker.register_group("orders", name)
    broker.join_group("orders", "b", "ann")
    gate, groups = held_back(broker, monkeypatch)
    first = Background(lambda: broker.commit_offsets("orders", "a", {0: 1}))
    eventually(lambda: len(groups) == 1)
    wishes: list[tuple[str, dict[int, int]]] = [("a", {0: 4, 1: 1}), ("a", {0: 3, 1: 2}), ("b", {0: 5}), ("c", {1: 6})]
    others = [Background(partial(broker.commit_offsets, "orders", *wish)) for wish in wishes]
    missing = Background(lambda: broker.commit_offsets("orders", "missing", {0: 1}))
    until_committing(broker, 5)
    gate.set()
    for commit in (first, others[0], others[1], others[3]):
        commit.result()
    with pytest.raises(GroupSizeConflict):
        others[2].result()
    with pytest.raises(GroupNotFound):
        missing.result()
    assert groups == [["a"], ["a", "b", "c", "missing"]]
    assert [other.committed("orders", name) for name in ("a", "b", "c")] == [{0: 4, 1: 2}, {}, {1: 6}]


def test_if_a_shared_transaction_fails_each_commit_is_made_by_itself(
    two: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, other = two
    broker.create_topic("orders")
    broker.publish("orders", batch(b"x"))
    broker.register_group("orders", "a")
    broker.join_group("orders", "b", "ann")
    raise_offsets = broker.store.catalog.raise_offsets

    def fail(*arguments: Any) -> None:
        raise_offsets(*arguments)
        raise StoreUnavailable("here", "no answer")

    monkeypatch.setattr(broker.store.catalog, "raise_offsets", fail)
    broker.commit_offsets("orders", "a", {0: 1})
    assert other.committed("orders", "a") == {0: 1}
    with pytest.raises(GroupSizeConflict):
        broker.commit_offsets("orders", "b", {0: 1})


# Upkeep and how it is doing


def test_metrics_and_maintenance_load_no_state(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders", deduplication="payload", retention_seconds=1)
    first.publish("orders", batch(b"a", producer_id="p", seqno=1))
    (topic_metrics,) = first.topic_metrics()
    assert (topic_metrics.sources, topic_metrics.window_payloads, topic_metrics.offsets) == (1, 1, {0: (0, 1)})
    second.list_topics()
    second.maintenance.run_all()
    (topic_metrics,) = second.topic_metrics()
    assert (topic_metrics.sources, topic_metrics.window_payloads, topic_metrics.offsets) == (0, 0, {0: (0, 1)})
    assert second.topics.find("orders").topic.log.peek() is None


def test_a_server_that_ends_leaves_the_others_alone(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.create_topic("orders")
    first.join_group("orders", "g", "ann")
    first.close()
    assert second.heartbeat("orders", "g", "ann").partitions == [0]
    assert second.publish("orders", batch(b"a")).written == 1


class _Wrong(SystemClock):
    """The clock of a machine that is set wrongly."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def now_us(self) -> int:
        return super().now_us() + self._seconds * MICROSECONDS


def _has_both(broker: Broker) -> bool:
    return broker.heartbeat("orders", "g", "live").partitions == [0, 1]


def test_servers_whose_clocks_differ_agree_on_sessions_by_the_clock_of_the_database(shared_site: Site) -> None:
    with (
        Broker.open(shared_site.url, clock=_Wrong(-3600)) as behind,
        Broker.open(shared_site.url, clock=_Wrong(3600)) as ahead,
    ):
        behind.create_topic("orders", partitions=2)
        behind.join_group("orders", "g", "live", session_timeout_seconds=600)
        behind.join_group("orders", "g", "dead", session_timeout_seconds=0.5)
        # Neither of them takes the one that lives for dead, nor keeps the dead one for an hour.
        for broker in (ahead, behind):
            eventually(partial(_has_both, broker))
        behind.commit_offsets("orders", "g", {0: 0, 1: 0}, "live", ahead.heartbeat("orders", "g", "live").generation)

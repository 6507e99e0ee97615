"""Transactions: stages of several topics, and offsets of groups, committed together or not at all, each key once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from headrace.broker import Broker
from headrace.core.errors import (
    CommitConflict,
    GroupNotFound,
    GroupSizeConflict,
    HeadraceError,
    InvalidInput,
    OffsetOutOfRange,
    SeqnoJump,
    StageNotFound,
    StaleGeneration,
    TopicNotFound,
)
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets
from tests.broker.background import Background, together
from tests.broker.messages import batch, content, everything
from tests.broker.sites import Site

KEY = CommitKey("w", 1)


def staged(broker: Broker, **values: bytes) -> dict[str, list[Staged]]:
    """A stage with one message in each topic named."""
    return {topic: [broker.stage(topic, batch(value))] for topic, value in values.items()}


def create(broker: Broker, *topics: str) -> None:
    for topic in topics:
        broker.create_topic(topic)


def contents(broker: Broker, *topics: str) -> list[list[bytes]]:
    return [content(broker, topic)[0] for topic in topics]


def test_stages_of_several_topics_are_published_together_and_dropped(durable_site: Site) -> None:
    broker = durable_site.open()
    create(broker, "a", "b", "c")
    stages = staged(broker, a=b"1", b=b"2")
    stages["a"].append(broker.stage("a", batch(b"3", b"4")))
    stages["c"] = []
    outcome = broker.commit_transaction(stages, commit_key=KEY)
    assert (outcome.messages, outcome.last_number) == ({"a": (3, 0), "b": (1, 0), "c": (0, 0)}, None)
    assert broker.store.stages.expire(1 << 62) == 0
    broker.publish("a", batch(b"5"))
    assert contents(broker, "a", "b", "c") == [[b"1", b"3", b"4", b"5"], [b"2"], []]
    broker = durable_site.reopen(broker)
    assert contents(broker, "a", "b", "c") == [[b"1", b"3", b"4", b"5"], [b"2"], []]


def test_a_known_key_drops_the_stages_whatever_topics_they_are_of(durable_site: Site) -> None:
    broker = durable_site.open()
    create(broker, "a", "b", "c")
    for _ in range(2):
        broker.commit_transaction(staged(broker, a=b"1", b=b"2"), commit_key=KEY)
        broker = durable_site.reopen(broker)
    assert broker.commit_transaction(staged(broker, c=b"3"), commit_key=KEY).last_number == 1
    assert broker.commit_transaction({}, commit_key=CommitKey("w", 0)).last_number == 1
    assert broker.store.stages.expire(1 << 62) == 0
    assert contents(broker, "a", "b", "c") == [[b"1"], [b"2"], []]
    with pytest.raises(CommitConflict):
        broker.commit_transaction(staged(broker, c=b"3"), commit_key=CommitKey("w", 0, 7))


def test_a_key_is_that_of_one_commit_also_if_it_is_used_at_the_same_time(broker: Broker) -> None:
    create(broker, "a", "b")
    asked = [staged(broker, **{topic: b"1"}) for topic in ("a", "b", "a", "b")]
    outcomes = together([partial(broker.commit_transaction, stages, commit_key=KEY) for stages in asked])
    assert sorted(len(outcome.messages) for outcome in outcomes) == [0, 0, 0, 1]
    assert sorted(contents(broker, "a", "b")) == [[], [b"1"]]


def test_without_a_key_the_stages_are_published_once(broker: Broker) -> None:
    create(broker, "a", "b")
    stages = staged(broker, a=b"1", b=b"2")
    broker.commit_transaction(stages)
    with pytest.raises(StageNotFound):
        broker.commit_transaction(stages)
    with pytest.raises(StageNotFound):
        broker.commit_transaction(stages, commit_key=KEY)
    assert contents(broker, "a", "b") == [[b"1"], [b"2"]]


def test_nothing_is_written_if_a_topic_or_a_stage_is_missing(broker: Broker) -> None:
    create(broker, "a", "b")
    stages = staged(broker, a=b"1")
    for name, error in (("c", TopicNotFound), ("b", StageNotFound)):
        with pytest.raises(error):
            broker.commit_transaction({**stages, name: [Staged("s", 1)]}, commit_key=KEY)
    with pytest.raises(StageNotFound):
        broker.commit_transaction({"a": [Staged(stages["a"][0].stage, 2)]}, commit_key=KEY)
    assert contents(broker, "a", "b") == [[], []]
    assert broker.commit_transaction(stages, commit_key=KEY).messages == {"a": (1, 0)}


def test_rows_that_are_refused_in_one_topic_are_written_in_none(broker: Broker) -> None:
    create(broker, "a", "b")
    broker.publish("b", batch(b"0", producer_id="p", seqno=1))
    stages = staged(broker, a=b"1")
    stages["b"] = [broker.stage("b", batch(b"2", producer_id="p", seqno=1 << 60))]
    with pytest.raises(SeqnoJump):
        broker.commit_transaction(stages, commit_key=KEY)
    assert contents(broker, "a", "b") == [[], [b"0"]]
    assert broker.commit_transaction({"a": stages["a"]}, commit_key=KEY).last_number is None


def test_duplicates_are_counted_by_topic(broker: Broker) -> None:
    create(broker, "a", "b")
    broker.publish("a", batch(b"0", producer_id="p", seqno=5))
    stages = {"a": [broker.stage("a", batch(b"0", b"2", producer_id="p", seqno=[5, 6]))], **staged(broker, b=b"3")}
    assert broker.commit_transaction(stages).messages == {"a": (1, 1), "b": (1, 0)}
    assert broker.counters["duplicates_by_source"] == 1


def test_topics_that_share_payloads_share_those_of_the_transaction(broker: Broker) -> None:
    for topic in ("a", "b", "c"):
        broker.create_topic(topic, deduplication="payload", deduplication_scope="store")
    broker.create_topic("alone")
    broker.publish("a", batch(b"old"))
    stages = {topic: [broker.stage(topic, batch(b"new", b"old", topic.encode()))] for topic in ("a", "b", "c")}
    broker.commit_transaction({**stages, **staged(broker, alone=b"new")})
    assert contents(broker, "a", "b", "c", "alone") == [[b"old", b"new", b"a"], [b"b"], [b"c"], [b"new"]]


def test_offsets_of_groups_are_committed_with_the_messages(durable_site: Site) -> None:
    broker = durable_site.open()
    create(broker, "in", "more", "out")
    for topic in ("in", "more"):
        broker.publish(topic, batch(b"1", b"2", b"3"))
        broker.register_group(topic, "g")
    broker.join_group("more", "g", "ann")
    offsets = [TransactionOffsets("in", "g", {0: 2}), TransactionOffsets("more", "g", {0: 3}, "ann", 1)]
    broker.commit_transaction(staged(broker, out=b"x"), offsets, KEY)
    assert broker.committed("in", "g") == {0: 2}
    broker = durable_site.reopen(broker)
    assert [broker.committed(topic, "g") for topic in ("in", "more")] == [{0: 2}, {0: 3}]
    # It is known, so that also the offsets stay; and offsets never move back.
    broker.commit_transaction({}, [TransactionOffsets("in", "g", {0: 3})], KEY)
    broker.commit_transaction({}, [TransactionOffsets("in", "g", {0: 1})])
    assert broker.committed("in", "g") == {0: 2}
    assert everything(broker, "out") == [b"x"]
    broker.commit_offsets("in", "g", {0: 3})
    assert broker.committed("in", "g") == {0: 3}


REFUSED: list[tuple[type[HeadraceError], TransactionOffsets]] = [
    (GroupNotFound, TransactionOffsets("in", "nobody", {0: 1})),
    (TopicNotFound, TransactionOffsets("nowhere", "g", {0: 1})),
    (OffsetOutOfRange, TransactionOffsets("in", "g", {0: 4})),
    (GroupSizeConflict, TransactionOffsets("in", "g", {0: 1})),
    (StaleGeneration, TransactionOffsets("in", "g", {0: 1}, "ann", 99)),
    (HeadraceError, TransactionOffsets("in", "g", {0: 1}, "bob", 1)),
]


@pytest.mark.parametrize(("error", "asked"), REFUSED)
def test_offsets_that_are_refused_publish_nothing(
    broker: Broker, error: type[HeadraceError], asked: TransactionOffsets
) -> None:
    create(broker, "in", "out")
    broker.publish("in", batch(b"1", b"2", b"3"))
    broker.register_group("in", "g")
    broker.join_group("in", "g", "ann")
    stages = staged(broker, out=b"x")
    with pytest.raises(error):
        broker.commit_transaction(stages, [asked], KEY)
    assert everything(broker, "out") == []
    assert broker.committed("in", "g") == {}
    good = TransactionOffsets("in", "g", {0: 1}, "ann", broker.heartbeat("in", "g", "ann").generation)
    broker.commit_transaction(stages, [good], KEY)
    assert (everything(broker, "out"), broker.committed("in", "g")) == ([b"x"], {0: 1})


def test_a_reader_that_waits_is_woken(broker: Broker) -> None:
    create(broker, "a", "b")
    waiting = [Background(partial(broker.fetch, topic, 0, 0, wait_seconds=60.0)) for topic in ("a", "b")]
    broker.commit_transaction(staged(broker, a=b"1", b=b"2"))
    assert [each.result().column("value").to_pylist() for each in waiting] == [[b"1"], [b"2"]]


def test_many_at_once_do_not_stop_each_other(broker: Broker) -> None:
    names = ["a", "b", "c"]
    create(broker, *names)

    def work(number: int) -> None:
        chosen: Sequence[str] = names[number % 3 :] + names[: number % 3]
        for step in range(5):
            stages = staged(broker, **dict.fromkeys(chosen[:2], b"%d-%d" % (number, step)))
            broker.commit_transaction(stages, commit_key=CommitKey(f"w{number}", step))
            broker.publish(chosen[2], batch(b"%d-%d alone" % (number, step)))

    together([partial(work, number) for number in range(4)])
    found = [set(values) for values in contents(broker, *names)]
    for number in range(4):
        for step in range(5):
            assert sum(b"%d-%d" % (number, step) in values for values in found) == 2
            assert sum(b"%d-%d alone" % (number, step) in values for values in found) == 1
    assert sum(map(len, contents(broker, *names))) == 4 * 5 * 3


def test_a_topic_is_named_once(broker: Broker) -> None:
    create(broker, "a")
    with pytest.raises(InvalidInput, match="named 2 times"):
        broker.commit_transaction({"a": [], "A": []})

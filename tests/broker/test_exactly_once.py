"""Exactly-once publishing: by source and seqno, and by commit key."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import MessageTooLarge, SeqnoJump
from headrace.core.limits import SEQNO_JUMP_MAX, SEQNO_MAX
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from tests.broker.background import Background, open_gated, publish_together, together, until_queued
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, content, everything, numbered, places, statuses
from tests.broker.sites import Site

DAY_SECONDS = 24 * 3600


# By source and seqno


def test_a_seqno_at_or_below_the_highest_written_is_a_duplicate(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", numbered(b"1", b"2", b"3"))
    retried = broker.publish("orders", numbered(b"2", b"3", b"4", first=2))
    assert statuses(retried) == ["duplicate", "duplicate", "written"]
    assert places(retried) == [(-1, -1), (-1, -1), (0, 3)]
    assert content(broker, "orders") == {0: [b"1", b"2", b"3", b"4"]}
    assert broker.counters["duplicates_by_source"] == 2


def test_gaps_are_fine_and_are_not_filled_later(broker: Broker) -> None:
    broker.create_topic("orders")
    assert statuses(broker.publish("orders", batch(b"a", b"b", producer_id="p", seqno=[10, 1000]))) == ["written"] * 2
    assert statuses(broker.publish("orders", batch(b"c", producer_id="p", seqno=500))) == ["duplicate"]


def test_a_seqno_that_jumps_is_refused_and_harms_nobody(broker: Broker) -> None:
    broker.create_topic("orders")
    for seqno in (1, 2):
        broker.publish("orders", batch(b"a", producer_id="p", seqno=seqno))
    outcomes = publish_together(
        broker,
        "orders",
        [
            batch(b"b", producer_id="p", seqno=3),
            batch(b"poison", producer_id="p", seqno=SEQNO_MAX),
            batch(b"c", producer_id="p", seqno=4),
            batch(b"d", producer_id="q", seqno=SEQNO_MAX),
        ],
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["Receipts", "SeqnoJump", "Receipts", "Receipts"]
    assert (broker.last_seqno("orders", "p"), broker.last_seqno("orders", "q")) == (4, SEQNO_MAX)
    with pytest.raises(SeqnoJump, match="reset the source") as caught:
        broker.publish("orders", batch(b"poison", producer_id="p", seqno=5 + SEQNO_JUMP_MAX))
    assert (caught.value.row, caught.value.value) == (0, str(5 + SEQNO_JUMP_MAX))
    with pytest.raises(SeqnoJump):
        key = CommitKey("writer", 1)
        broker.publish("orders", batch(b"poison", producer_id="p", seqno=5 + SEQNO_JUMP_MAX), key)
    assert broker.last_commit("orders", "writer") is None
    assert statuses(broker.publish("orders", batch(b"e", producer_id="p", seqno=4 + SEQNO_JUMP_MAX))) == ["written"]


def test_a_seqno_that_jumps_beside_one_that_is_bad_is_refused(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", producer_id="p", seqno=1))
    bad, jumping = batch(b"x", partition=99), batch(b"poison", producer_id="p", seqno=SEQNO_MAX)
    outcomes = publish_together(broker, "orders", [bad, jumping, batch(b"b", producer_id="p", seqno=2)])
    assert isinstance(outcomes[1], SeqnoJump) and isinstance(outcomes[2], Receipts)
    assert broker.last_seqno("orders", "p") == 2


def test_a_seqno_may_jump_where_none_counts(broker: Broker) -> None:
    broker.create_topic("free", deduplication="off")
    for seqno in (1, SEQNO_MAX):
        assert statuses(broker.publish("free", batch(b"a", producer_id="p", seqno=seqno))) == ["written"]


def test_a_commit_that_was_published_before_is_no_jump(broker: Broker) -> None:
    broker.create_topic("orders")
    key = CommitKey("writer", 1)
    broker.publish("orders", batch(b"a", producer_id="p", seqno=SEQNO_MAX), key)
    broker.publish("orders", batch(b"a", producer_id="q", seqno=1))
    assert statuses(broker.publish("orders", batch(b"a", producer_id="q", seqno=SEQNO_MAX), key)) == ["duplicate"]


def test_repeats_inside_one_batch_are_found(broker: Broker) -> None:
    broker.create_topic("orders")
    mixed = batch(*[b"%d" % n for n in range(6)], producer_id=["p", "q", "p", "q", "p", "q"], seqno=[2, 1, 1, 1, 3, 2])
    assert statuses(broker.publish("orders", mixed)) == [
        "written",
        "written",
        "duplicate",
        "conflict",
        "written",
        "written",
    ]


def test_each_source_counts_for_itself(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("others")
    broker.publish("orders", numbered(b"a"))
    for other in (
        batch(b"b", producer_id="q", seqno=1),
        batch(b"c", producer_id="p", message_group_id="g", seqno=1),
        batch(b"d", producer_id="P", seqno=1),
    ):
        assert statuses(broker.publish("orders", other)) == ["written"]
    assert statuses(broker.publish("others", numbered(b"a"))) == ["written"]


def test_rows_without_a_producer_are_never_duplicates(broker: Broker) -> None:
    broker.create_topic("orders")
    for _ in range(3):
        assert statuses(broker.publish("orders", batch(b"same", b"same"))) == ["written"] * 2


def test_rows_of_a_producer_that_does_not_number_are_never_duplicates(broker: Broker) -> None:
    broker.create_topic("orders")
    mixed = batch(b"a", b"a", b"b", producer_id="p", seqno=[None, None, 5])
    assert statuses(broker.publish("orders", mixed)) == ["written"] * 3
    assert statuses(broker.publish("orders", mixed)) == ["written", "written", "duplicate"]


def test_with_deduplication_off_everything_is_written(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="off")
    for _ in range(2):
        assert statuses(broker.publish("orders", numbered(b"a"))) == ["written"]
    assert broker.last_seqno("orders", "p") == 1


def test_the_highest_seqno_there_is_can_be_used_once(broker: Broker) -> None:
    broker.create_topic("orders")
    assert statuses(broker.publish("orders", batch(b"a", producer_id="p", seqno=SEQNO_MAX))) == ["written"]
    assert statuses(broker.publish("orders", batch(b"a", producer_id="p", seqno=SEQNO_MAX))) == ["duplicate"]
    assert broker.last_seqno("orders", "p") == SEQNO_MAX


def test_last_seqno_says_where_a_producer_continues(broker: Broker) -> None:
    broker.create_topic("orders")
    assert broker.last_seqno("orders", "p") is None
    broker.publish("orders", batch(b"a", producer_id="p"))
    assert broker.last_seqno("orders", "p") is None
    broker.publish("orders", batch(b"a", b"b", producer_id="p", seqno=[0, 41]))
    broker.publish("orders", batch(b"c", producer_id="p", message_group_id="g", seqno=7))
    assert broker.last_seqno("orders", "p") == 41
    assert broker.last_seqno("orders", "p", "g") == 7
    assert broker.last_seqno("ORDERS", "q") is None


def test_last_seqno_is_found_while_many_new_producers_appear(broker: Broker) -> None:
    broker.create_topic("orders")

    def publish(thread: int) -> None:
        for number in range(40):
            broker.publish("orders", batch(b"", producer_id=f"{thread}-{number}", seqno=number))
            assert broker.last_seqno("orders", f"{thread}-{number}") == number

    together([partial(publish, thread) for thread in range(4)])


def test_a_retry_after_a_restart_is_a_duplicate(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    for first in range(1, 10, 2):
        broker.publish("orders", numbered(b"a", b"b", first=first))
    broker = durable_site.reopen(broker)
    assert broker.last_seqno("orders", "p") == 10
    assert statuses(broker.publish("orders", numbered(b"b", b"c", first=10))) == ["duplicate", "written"]


def test_a_retry_after_a_crash_is_a_duplicate(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    for first in range(1, 10, 2):
        broker.publish("orders", numbered(b"a", b"b", first=first))
    after = durable_site.crashed(tmp_path / "after")
    repaired = after.open()
    assert repaired.last_seqno("orders", "p") == 10
    assert statuses(repaired.publish("orders", numbered(b"b", b"c", first=10))) == ["duplicate", "written"]
    after.close()


def test_a_seqno_is_remembered_longer_than_the_link(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    broker.publish("orders", numbered(b"a"))
    clock.step(100 * DAY_SECONDS)
    broker.maintenance.run_all()
    assert statuses(broker.publish("orders", numbered(b"a"))) == ["duplicate"]


def test_threads_that_send_the_same_messages_write_each_once(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)

    def publish() -> list[str]:
        sent: list[str] = []
        for first in range(1, 41, 4):
            sent += statuses(
                broker.publish("orders", numbered(*[b"%d" % n for n in range(first, first + 4)], first=first))
            )
        return sent

    sent = list(chain.from_iterable(together([publish] * 8)))
    assert sent.count("written") == 40
    assert sorted(map(int, everything(broker, "orders"))) == list(range(1, 41))
    assert broker.last_seqno("orders", "p") == 40


# By commit key


def test_the_same_number_again_publishes_nothing_and_says_so(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    key = CommitKey("query-1", 7)
    assert broker.last_commit("orders", "query-1") is None
    assert statuses(broker.publish("orders", batch(b"a", b"b"), key)) == ["written", "written"]
    repeated = broker.publish("orders", batch(b"a", b"b"), key)
    assert statuses(repeated) == ["duplicate", "duplicate"]
    assert repeated.written == 0
    assert everything(broker, "orders") == [b"a", b"b"]
    assert broker.last_commit("orders", "query-1") == 7
    assert broker.counters["duplicates_by_commit_key"] == 2


def test_numbers_only_rise_and_may_leave_gaps(broker: Broker) -> None:
    broker.create_topic("orders")
    for number, status in ((0, "written"), (5, "written"), (3, "duplicate"), (6, "written"), (6, "duplicate")):
        assert statuses(broker.publish("orders", batch(b"%d" % number), CommitKey("w", number))) == [status]
    assert content(broker, "orders") == {0: [b"0", b"5", b"6"]}


def test_each_writer_and_each_topic_counts_for_itself(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("others")
    broker.publish("orders", batch(b"a"), CommitKey("w", 3))
    assert statuses(broker.publish("orders", batch(b"b"), CommitKey("v", 3))) == ["written"]
    assert statuses(broker.publish("others", batch(b"c"), CommitKey("w", 3))) == ["written"]


def test_a_commit_of_no_rows_uses_its_number_up(broker: Broker) -> None:
    broker.create_topic("orders")
    assert len(broker.publish("orders", batch(), CommitKey("w", 1))) == 0
    assert broker.last_commit("orders", "w") == 1
    assert statuses(broker.publish("orders", batch(b"a"), CommitKey("w", 1))) == ["duplicate"]
    assert content(broker, "orders") == {0: []}


def test_a_commit_whose_rows_are_all_duplicates_uses_its_number_up(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", numbered(b"a"))
    assert statuses(broker.publish("orders", numbered(b"a"), CommitKey("w", 1))) == ["duplicate"]
    assert broker.last_commit("orders", "w") == 1


def test_a_refused_commit_leaves_its_number_free(broker: Broker) -> None:
    broker.create_topic("orders", message_bytes_max=3)
    with pytest.raises(MessageTooLarge):
        broker.publish("orders", batch(b"long"), CommitKey("w", 1))
    assert broker.last_commit("orders", "w") is None
    assert broker.counters["duplicates_by_commit_key"] == 0
    assert statuses(broker.publish("orders", batch(b"fit"), CommitKey("w", 1))) == ["written"]


def test_keys_survive_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")
    for number in range(5):
        broker.publish("orders", batch(b"a"), CommitKey(f"w{number % 2}", number))
    broker.publish("orders", batch(), CommitKey("empty", 9))
    broker = durable_site.reopen(broker)
    assert [broker.last_commit("orders", writer) for writer in ("w0", "w1", "empty", "w2")] == [4, 3, 9, None]
    assert statuses(broker.publish("orders", batch(b"a"), CommitKey("w0", 4))) == ["duplicate"]


def test_keys_survive_a_crash(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")
    for number in range(5):
        broker.publish("orders", batch(b"a"), CommitKey("w", number))
    broker.publish("orders", batch(), CommitKey("empty", 9))
    after = durable_site.crashed(tmp_path / "after")
    repaired = after.open()
    assert (repaired.last_commit("orders", "w"), repaired.last_commit("orders", "empty")) == (4, 9)
    after.close()


def test_threads_that_race_with_one_key_publish_once(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)

    def publish(thread: int) -> list[Receipts]:
        return [broker.publish("orders", batch(b"%d-%d" % (thread, n), b""), CommitKey("w", n)) for n in range(10)]

    outcomes = together([partial(publish, thread) for thread in range(8)])
    for number in range(10):
        written = [receipts[number].written for receipts in outcomes]
        assert sorted(written)[:-1] == [0] * 7
    assert len(everything(broker, "orders")) == sum(receipts.written for part in outcomes for receipts in part)
    assert broker.last_commit("orders", "w") == 9


def test_the_same_key_twice_in_one_group_commit_publishes_once(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    store.gate.clear()
    leader = Background(lambda: broker.publish("orders", batch(b"leads")))
    until_queued(broker, "orders", 1)
    keys = [CommitKey("w", 2), CommitKey("w", 1), CommitKey("w", 3), CommitKey("v", 1)]
    followers = []
    for place, key in enumerate(keys):
        followers.append(Background(partial(broker.publish, "orders", batch(b"%d" % place), key)))
        until_queued(broker, "orders", place + 2)
    store.gate.set()
    assert statuses(leader.result()) == ["written"]
    assert [statuses(follower.result())[0] for follower in followers] == ["written", "duplicate", "written", "written"]
    assert content(broker, "orders") == {0: [b"leads", b"0", b"2", b"3"]}
    assert broker.counters["commits_written"] == 2
    assert (broker.last_commit("orders", "w"), broker.last_commit("orders", "v")) == (3, 1)

"""Staging: rows put aside in pieces by many writers, published together in one commit, or dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import (
    CommitConflict,
    InvalidInput,
    MessageTooLarge,
    SeqnoJump,
    StageNotFound,
    TopicNotFound,
)
from headrace.core.limits import FRAME_ROWS
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions
from tests.broker.background import Background, eventually, open_gated, together, until_queued
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, content, everything, numbered
from tests.broker.sites import Site
from tests.storage.disk.builders import FailingFiles


def test_staged_rows_are_seen_only_once_they_are_published(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    first = broker.stage("orders", batch(b"a", b"b"), "task-1")
    second = broker.stage("orders", batch(b"c", key=b"k"), "task-2")
    assert (first, second) == (Staged("task-1", 2), Staged("task-2", 1))
    assert content(broker, "orders") == {0: [], 1: []}
    assert broker.publish_staged("orders", [second, first]) == (3, 0)
    assert everything(broker, "orders") == [b"a", b"b", b"c"]
    assert broker.counters["commits_written"] == 1


def test_rows_are_published_in_the_order_of_the_stages_and_pieces(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.stage("orders", batch(b"a1"), "a")
    stage_b = broker.stage("orders", batch(b"b1"), "b")
    stage_a = broker.stage("orders", batch(b"a2", key=b"k"), "a")
    assert stage_a == Staged("a", 2)
    assert broker.publish_staged("orders", [stage_b, stage_a]) == (3, 0)
    assert content(broker, "orders") == {0: [b"b1", b"a1", b"a2"]}


def test_a_stage_without_a_name_gets_one_of_its_own(broker: Broker) -> None:
    broker.create_topic("orders")
    first, second = broker.stage("orders", batch(b"a")), broker.stage("orders", batch(b"b"))
    assert first.stage != second.stage
    assert broker.publish_staged("orders", [first, second]) == (2, 0)


def test_published_stages_are_deleted(broker: Broker) -> None:
    broker.create_topic("orders")
    staged = broker.stage("orders", batch(b"a"))
    broker.publish_staged("orders", [staged])
    with pytest.raises(StageNotFound) as caught:
        broker.publish_staged("orders", [staged])
    assert (caught.value.topic, caught.value.stage) == ("orders", staged.stage)
    assert content(broker, "orders") == {0: [b"a"]}


def test_aborted_stages_are_never_published(broker: Broker) -> None:
    broker.create_topic("orders")
    staged = [broker.stage("orders", batch(b"a")), broker.stage("orders", batch(b"b"))]
    assert broker.drop_stages("orders", [part.stage for part in staged] + ["unknown"]) == 2
    assert broker.drop_stages("orders", [staged[0].stage]) == 0
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", staged)
    assert content(broker, "orders") == {0: []}


def test_a_missing_stage_fails_the_whole_and_keeps_the_others(broker: Broker) -> None:
    broker.create_topic("orders")
    staged = broker.stage("orders", batch(b"a"))
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", [staged, Staged("missing", 1)], CommitKey("w", 1))
    assert content(broker, "orders") == {0: []}
    assert broker.last_commit("orders", "w") is None
    assert broker.publish_staged("orders", [staged], CommitKey("w", 1)) == (1, 0)


def test_a_stage_with_other_rows_than_named_fails_the_whole(broker: Broker) -> None:
    broker.create_topic("orders")
    before = broker.stage("orders", batch(b"a"), "s")
    after = broker.stage("orders", batch(b"b"), "s")
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", [before])
    assert content(broker, "orders") == {0: []}
    broker.publish_staged("orders", [after])
    assert content(broker, "orders") == {0: [b"a", b"b"]}


def test_a_stage_nobody_cares_for_is_dropped_after_a_time(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    idle, busy = broker.stage("orders", batch(b"a"), "idle"), broker.stage("orders", batch(b"b"), "busy")
    clock.step(3599)
    busy = broker.stage("orders", batch(b"c"), "busy")
    clock.step(1)
    broker.maintenance.run_all()
    assert broker.counters["stages_expired"] == 1
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", [idle])
    broker.publish_staged("orders", [busy])
    assert content(broker, "orders") == {0: [b"b", b"c"]}


def test_how_long_stages_are_kept_is_a_setting(site: Site) -> None:
    broker = site.open(stage_idle_seconds=5.0)
    broker.create_topic("orders")
    broker.stage("orders", batch(b"a"))
    site.clock.step(5)
    broker.maintenance.run_all()
    assert broker.counters["stages_expired"] == 1


def test_a_used_commit_key_publishes_nothing_and_drops_the_stages(broker: Broker) -> None:
    broker.create_topic("orders")
    key = CommitKey("query", 4)
    broker.publish_staged("orders", [broker.stage("orders", batch(b"a"))], key)
    again = broker.stage("orders", batch(b"a", b"b"))
    assert broker.publish_staged("orders", [again], key) == (0, 2)
    assert broker.drop_stages("orders", [again.stage]) == 0
    assert content(broker, "orders") == {0: [b"a"]}


def test_a_commit_that_is_retried_after_its_stages_were_deleted_is_a_duplicate(broker: Broker) -> None:
    broker.create_topic("orders")
    staged = [broker.stage("orders", batch(b"a", b"b")), broker.stage("orders", batch(b"c"))]
    key = CommitKey("query", 4)
    broker.publish_staged("orders", staged, key)
    assert broker.publish_staged("orders", staged, key) == (0, 3)
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", staged, CommitKey("query", 5))


def test_the_last_commits_of_a_writer_in_many_topics(site: Site) -> None:
    broker = site.open()
    keys = {"orders": CommitKey("query", 4, 1), "payments": CommitKey("query", 3)}
    for topic in ("orders", "payments", "refunds"):
        broker.create_topic(topic)
        broker.publish(topic, batch(b"a"), CommitKey("another", 7))
    for topic, key in keys.items():
        broker.publish_staged(topic, [broker.stage(topic, batch(b"b"))], key)
    asked = ["Orders", "payments", "refunds", "missing"]
    assert broker.last_commits(asked, "query") == {"Orders": keys["orders"], "payments": keys["payments"]}
    reopened = site.reopen(broker) if site.engine.is_durable else broker
    assert reopened.last_commits(["orders"], "query") == {"orders": keys["orders"]}
    assert reopened.last_commits([], "query") == {}


def test_a_known_number_with_another_fingerprint_is_refused(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    first = [broker.stage("orders", batch(b"a"))]
    broker.publish_staged("orders", first, CommitKey("query", 4, 1))
    other = [broker.stage("orders", batch(b"b"))]
    for key in (CommitKey("query", 4, 2), CommitKey("query", 3, 2)):
        for stages in (other, [Staged("missing", 1)]):
            with pytest.raises(CommitConflict, match="copied"):
                broker.publish_staged("orders", stages, key)
    reopened = site.reopen(broker) if site.engine.is_durable else broker
    assert reopened.publish_staged("orders", first, CommitKey("query", 4, 1)) == (0, 1), "a retry"
    with pytest.raises(CommitConflict):
        reopened.publish_staged("orders", [reopened.stage("orders", batch(b"b"))], CommitKey("query", 4, 2))
    assert content(reopened, "orders") == {0: [b"a"]}
    assert reopened.last_commit("orders", "query") == 4


def test_threads_that_race_with_one_key_publish_the_stages_once(broker: Broker) -> None:
    broker.create_topic("orders")
    for number in range(10):
        staged = [broker.stage("orders", batch(b"%d" % number, b"x")), broker.stage("orders", batch(b"y"))]
        calls = [partial(broker.publish_staged, "orders", staged, CommitKey("query", number))] * 4
        assert sorted(together(calls)) == [(0, 3)] * 3 + [(3, 0)]
    assert len(everything(broker, "orders")) == 30


def test_a_commit_of_no_stages_uses_its_number_up(broker: Broker) -> None:
    broker.create_topic("orders")
    assert broker.publish_staged("orders", [], CommitKey("query", 1)) == (0, 0)
    assert broker.last_commit("orders", "query") == 1
    empty = broker.stage("orders", batch(), "empty")
    assert empty.rows == 0
    assert broker.publish_staged("orders", [empty], CommitKey("query", 2)) == (0, 0)


def test_staged_rows_go_through_the_same_plan(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    broker.publish("orders", numbered(b"1", b"2"))
    staged = broker.stage("orders", numbered(b"2", b"3", first=2))
    assert broker.publish_staged("orders", [staged]) == (1, 1)
    assert broker.last_seqno("orders", "p") == 3


def test_bad_rows_are_refused_when_they_are_staged(broker: Broker) -> None:
    broker.create_topic("orders", message_bytes_max=3)
    staged = broker.stage("orders", batch(b"ok"), "s")
    with pytest.raises(MessageTooLarge):
        broker.stage("orders", batch(b"long"), "s")
    broker.publish_staged("orders", [staged])
    assert content(broker, "orders") == {0: [b"ok"]}


def test_a_stage_named_twice_is_refused(broker: Broker) -> None:
    broker.create_topic("orders")
    staged = broker.stage("orders", batch(b"a"), "s")
    with pytest.raises(InvalidInput, match="it is named 2 times"):
        broker.publish_staged("orders", [staged, staged])
    assert broker.publish_staged("orders", [staged]) == (1, 0)


def test_stages_are_of_one_topic(broker: Broker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    staged = broker.stage("a", batch(b"x"), "s")
    with pytest.raises(StageNotFound):
        broker.publish_staged("b", [staged])
    broker.delete_topic("a")
    with pytest.raises(TopicNotFound):
        broker.publish_staged("a", [staged])
    broker.create_topic("a")
    with pytest.raises(StageNotFound):
        broker.publish_staged("a", [staged])


def test_many_writers_stage_at_the_same_time(broker: Broker) -> None:
    broker.create_topic("orders")

    def write(writer: int) -> Staged:
        for piece in range(9):
            broker.stage("orders", batch(b"%d-%d" % (writer, piece)), f"task-{writer}")
        return broker.stage("orders", batch(b"%d-9" % writer), f"task-{writer}")

    staged = together([partial(write, writer) for writer in range(6)])
    broker.publish_staged("orders", staged)
    assert content(broker, "orders") == {0: [b"%d-%d" % (writer, piece) for writer in range(6) for piece in range(10)]}


def test_a_topic_deleted_after_the_commit_does_not_undo_its_receipts(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders")
    staged = broker.stage("orders", batch(b"a"), "s")
    store.gate.clear()
    publishing = Background(lambda: broker.publish_staged("orders", [staged]))
    until_queued(broker, "orders", 1)
    queue = broker.topics.find("orders").topic.intake
    deleting = Background(lambda: broker.delete_topic("orders"))
    eventually(lambda: queue._closed is not None)
    store.gate.set()
    assert publishing.result() == (1, 0)
    deleting.result()


def test_stages_survive_the_death_of_the_process(disk_site: Site, tmp_path: Path) -> None:
    broker = disk_site.open()
    broker.create_topic("orders", partitions=2)
    broker.stage("orders", batch(b"a", b"b"), "s")
    staged = broker.stage("orders", batch(b"c", key=b"k"), "s")
    after = disk_site.crashed(tmp_path / "after")
    assert after.open().publish_staged("orders", [staged]) == (3, 0)
    after.close()
    assert disk_site.reopen(broker).publish_staged("orders", [staged]) == (3, 0)


def test_a_commit_over_many_frames_is_seen_whole_or_not_at_all(site: Site, broker: Broker) -> None:
    """A reader that looks all the time never sees a part of it; a partition that has rows of the first frame and one
    that has rows of the last are always of the same commit."""
    broker.create_topic("orders", partitions=2)
    rows = FRAME_ROWS // 2
    value = pa.array([b"x"] * rows, pa.binary())
    halves = [
        pa.record_batch({"value": value, "partition": pa.array([partition] * rows, pa.int32())}) for partition in (0, 1)
    ]
    commits = 1 if site.engine.is_shared else 3
    seen: set[tuple[int, int]] = set()

    def watch() -> None:
        while (0, commits * 3 * rows) not in seen:
            ends = [end for _, end in broker.offsets("orders").values()]
            seen.add((ends[0] - ends[1], ends[0]))

    watcher = Background(watch)
    for number in range(commits):
        staged = [broker.stage("orders", halves[piece % 2], f"{number}-{piece}") for piece in range(6)]
        assert broker.publish_staged("orders", staged, CommitKey("query", number)) == (6 * rows, 0)
    watcher.result()
    assert {difference for difference, _ in seen} == {0}
    assert {end for _, end in seen} <= {number * 3 * rows for number in range(commits + 1)}
    assert broker.counters["commits_written"] == commits
    assert broker.counters["frames_written"] > 2 * commits


def keyed(first: int, count: int, size: int = 1) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return batch(*(b"%d" % number + b"." * size for number in numbers), key=[b"k%d" % (each % 5) for each in numbers])


def numbers_in(broker: Broker, topic: str) -> dict[int, list[int]]:
    return {
        partition: [int(value.rstrip(b".")) for value in values] for partition, values in content(broker, topic).items()
    }


# What is larger than a frame is read while its commit is written; one with as many rows is placed when it is staged.
SMALL_FRAMES = {"frame_rows": 8, "frame_bytes": 2000}


def test_large_stages_are_written_as_they_were_placed(site: Site) -> None:
    """In frames of their own or with others, with and without keys: in the end each is where its key says, in order."""
    broker = site.open(**SMALL_FRAMES)
    broker.create_topic("orders", partitions=3)
    broker.publish("orders", batch(b"0", key=b"k0"))
    stages = [broker.stage("orders", keyed(1, 6), "a"), broker.stage("orders", keyed(7, 20), "b")]
    stages += [broker.stage("orders", keyed(27, 3, 1000), "c"), broker.stage("orders", keyed(30, 8), "d")]
    assert broker.publish_staged("orders", stages, CommitKey("w", 1)) == (37, 0)
    assert broker.publish_staged("orders", stages, CommitKey("w", 1)) == (0, 37)
    found = numbers_in(broker, "orders")
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(38))
    broker.create_topic("alike", partitions=3)
    broker.publish("alike", keyed(0, 38))
    assert found == numbers_in(broker, "alike")
    assert broker.counters["commits_written"] == 3
    assert broker.counters["messages_written"] == 76


def test_rows_without_keys_take_turns_when_they_are_placed(site: Site) -> None:
    broker = site.open(**SMALL_FRAMES)
    broker.create_topic("orders", partitions=4)
    staged = [broker.stage("orders", batch(*(b"%d" % each for each in range(8)))) for _ in range(5)]
    assert broker.publish_staged("orders", staged) == (40, 0)
    assert [len(values) for values in content(broker, "orders").values()] == [10] * 4


@pytest.mark.parametrize("change", ["partitions", "payload", "key_hash"])
def test_what_was_placed_before_the_topic_changed_is_placed_again(site: Site, change: str) -> None:
    broker = site.open(**SMALL_FRAMES)
    broker.create_topic("orders", partitions=2)
    staged = [broker.stage("orders", keyed(0, 8)), broker.stage("orders", keyed(0, 8))]
    if change == "partitions":
        broker.alter_topic("orders", partitions=5)
    elif change == "key_hash":
        broker.alter_topic("orders", key_hash="murmur2")
    else:
        broker.alter_topic("orders", deduplication="payload")
    is_payload = change == "payload"
    assert broker.publish_staged("orders", staged) == ((8, 8) if is_payload else (16, 0))
    settings = broker.describe_topic("orders").settings
    broker.create_topic("alike", partitions=5 if change == "partitions" else 2, key_hash=settings.key_hash)
    for _ in range(1 if is_payload else 2):
        broker.publish("alike", keyed(0, 8))
    # Rows of different keys may be in another order than they were sent in.
    found, expected = numbers_in(broker, "orders"), numbers_in(broker, "alike")
    for partition, numbers in expected.items():
        assert sorted(found[partition], key=lambda number: number % 5) == sorted(numbers, key=lambda number: number % 5)


def test_a_large_stage_with_seqnos_is_checked_as_a_whole(site: Site) -> None:
    broker = site.open(**SMALL_FRAMES)
    broker.create_topic("orders", partitions=2)
    values = [b"%d" % number for number in range(30)]
    good = broker.stage("orders", numbered(*values), "good")
    jumping = broker.stage("orders", numbered(*values, first=1 << 60), "jumping")
    with pytest.raises(SeqnoJump):
        broker.publish_staged("orders", [good, jumping])
    assert everything(broker, "orders") == []
    assert broker.publish_staged("orders", [good], CommitKey("w", 1)) == (30, 0)
    again = broker.stage("orders", numbered(*values, b"new"), "again")
    assert broker.publish_staged("orders", [again], CommitKey("w", 2)) == (1, 30)
    assert broker.counters["duplicates_by_source"] == 30


def test_a_piece_that_is_lost_while_it_is_published_undoes_all_of_it(disk_site: Site) -> None:
    broker = disk_site.open(**SMALL_FRAMES)
    for topic in ("orders", "refunds", "others"):
        broker.create_topic(topic, partitions=2)
        broker.publish(topic, batch(b"0"))
    for topic, key in (("orders", None), ("refunds", CommitKey("w", 1))):
        stages = [broker.stage(topic, keyed(number * 8, 8)) for number in range(20)]
        paths = list((disk_site.directory / "stages").iterdir())
        paths[7].write_bytes(bytes(paths[7].stat().st_size))
        for _ in range(2):
            with pytest.raises(StageNotFound):
                broker.publish_staged(topic, stages, key)
        with pytest.raises(StageNotFound):
            broker.commit_transaction({topic: stages, "others": []}, commit_key=key)
        assert numbers_in(broker, topic) in ({0: [0], 1: []}, {0: [], 1: [0]})
        broker.drop_stages(topic, [staged.stage for staged in stages])
    broker.publish("orders", batch(b"1"))
    assert everything(disk_site.reopen(broker), "orders") == [b"0", b"1"]


class DroppedWhileRead(FileSystem):
    """Drops the stages of a broker when one of them is read."""

    def __init__(self) -> None:
        self.drop: Callable[[], object] = lambda: None

    def map(self, path: Path) -> memoryview:
        if path.parent.name == "stages":
            self.drop()
        return super().map(path)


@pytest.mark.parametrize("how", ["drop", "expire"])
@pytest.mark.parametrize("topics", [["orders"], ["orders", "refunds"]], ids=["one topic", "two topics"])
def test_a_commit_goes_on_if_its_stages_are_dropped_while_it_reads_them(
    disk_site: Site, how: str, topics: list[str]
) -> None:
    """So does Spark if it has waited for its commit for too long: the batch is published, and its repetition is not."""
    files = DroppedWhileRead()
    broker = disk_site.open(DiskStore(disk_site.directory, DiskOptions(), files), **SMALL_FRAMES)
    for topic in topics:
        broker.create_topic(topic, partitions=2)
    staged = {topic: [broker.stage(topic, keyed(number * 8, 8)) for number in range(20)] for topic in topics}
    stages = broker.store.stages

    def drop() -> None:
        if how == "expire":
            stages.expire(1 << 62)
        for topic, each in staged.items():
            left = broker.drop_stages(topic, [stage.stage for stage in each])
            assert how == "drop" or not left
            with pytest.raises(InvalidInput, match="under another name"):
                broker.stage(topic, batch(b"new"), each[0].stage)

    with pytest.raises(StageNotFound):
        broker.commit_transaction({topics[0]: [*staged[topics[0]], Staged("missing", 1)]})
    files.drop = drop
    for expected in ((160, 0), (0, 160)):
        if len(topics) == 1:
            assert broker.publish_staged("orders", staged["orders"], CommitKey("w", 1)) == expected
        else:
            outcome = broker.commit_transaction(staged, commit_key=CommitKey("w", 1))
            assert outcome.messages == (dict.fromkeys(topics, expected) if expected[0] else {})
    assert [len(everything(broker, topic)) for topic in topics] == [160] * len(topics)
    assert list((disk_site.directory / "stages").iterdir()) == []
    assert broker.stage("orders", batch(b"new"), staged["orders"][0].stage).rows == 1


def test_a_large_commit_reads_its_stages_only_as_it_is_written(disk_site: Site) -> None:
    """So it needs as much memory as a few frames, however large it is."""
    files = FailingFiles()
    broker = disk_site.open(DiskStore(disk_site.directory, DiskOptions(), files), **SMALL_FRAMES)
    for topic in ("orders", "refunds"):
        broker.create_topic(topic, partitions=2)
    for topics in (["orders"], ["orders", "refunds"]):
        staged = {topic: [broker.stage(topic, keyed(number * 8, 8)) for number in range(50)] for topic in topics}
        files.calls.clear()
        if len(topics) == 1:
            assert broker.publish_staged("orders", staged["orders"]) == (400, 0)
        else:
            assert broker.commit_transaction(staged).messages == dict.fromkeys(topics, (400, 0))
        ahead = list(accumulate({"map": 1, "write": -1}.get(call, 0) for call in files.calls))
        assert files.calls.count("map") == 50 * len(topics)
        assert max(ahead) <= 4

"""Everything that writes, as scenarios: what fault tests interrupt."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from headrace.broker.settings import BrokerSettings
from headrace.core.publish.state import CommitKey
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.faults.crashes import CATALOG, DAY_US, Scenario, Session
from tests.faults.invariants import TINY, Message

ONE_SEGMENT = DiskOptions()
SMALL_FRAMES = BrokerSettings(frame_rows=4)
# Stages are read while they are published, and rows are placed when they are staged.
TINY_FRAMES = BrokerSettings(frame_rows=4, frame_bytes=200)
UNSYNCED = DiskOptions(durability="os", segment_bytes=TINY.segment_bytes, segment_frames=TINY.segment_frames)

# What the journal had of a transaction.
RECORD: list[JournalEntry] = []

# Zeros are written ahead of the third small commit, and of those after it.
WITH_ROOM = DiskOptions(segment_bytes=6000, segment_frames=4, room_bytes=16 << 10)


def numbered(source: str, seqnos: Sequence[int], key: bytes | None = None, group: str | None = None) -> list[Message]:
    """Messages of one source."""
    return [Message(f"{source}/{group or ''}/{seqno}".encode(), key, source, group, seqno) for seqno in seqnos]


def plain(tag: str, count: int, key: bytes | None = None) -> list[Message]:
    """Messages without a source."""
    return [Message(f"{tag}-{place}".encode(), key) for place in range(count)]


def one_partition(session: Session) -> None:
    session.ledger.create_topic(session.broker, "t", 1)
    session.ledger.publish(session.broker, "t", plain("first", 2))


def three_partitions(session: Session) -> None:
    """A topic with a group, two sources and a writer, on a segment and a half."""
    broker, ledger = session.broker, session.ledger
    ledger.create_topic(broker, "t", 3)
    broker.register_group("t", "readers")
    for place in range(3):
        ledger.publish(broker, "t", [*numbered("a", [2 * place, 2 * place + 1]), *plain(f"p{place}", 2, b"k")])
        ledger.publish(broker, "t", numbered("b", [place], group="g"), CommitKey("w", place))
    ledger.commit(broker, "t", "readers", {0: 1, 1: 1})


def by_payload(session: Session) -> None:
    session.ledger.create_topic(session.broker, "t", 2, deduplication="payload")
    session.ledger.publish(session.broker, "t", plain("first", 3), repeats=True)


def live(session: Session) -> None:
    """The newest segment has a frame that no index knows of."""
    session.ledger.publish(session.broker, "t", plain("live", 1))


def publish_one(session: Session) -> None:
    session.ledger.publish(session.broker, "t", plain("one", 1))
    session.ledger.publish(session.broker, "t", plain("two", 1))


def enter_room(session: Session) -> None:
    """With what was there before, the newest segment has three frames and zeros behind them."""
    session.ledger.publish(session.broker, "t", plain("room", 1))
    session.ledger.publish(session.broker, "t", plain("more room", 1))


def publish_over_partitions(session: Session) -> None:
    messages = [message for number in range(6) for message in plain(f"m{number}", 1, b"key%d" % number)]
    session.ledger.publish(session.broker, "t", [*messages, *plain("keyless", 3)])


def publish_sources(session: Session) -> None:
    mixed = [*numbered("a", [10, 11]), *numbered("c", [0]), *numbered("b", [7], group="g"), *numbered("a", [20])]
    session.ledger.publish(session.broker, "t", mixed)
    session.ledger.publish(session.broker, "t", numbered("c", [1, 2], b"k"))


def publish_with_key(session: Session) -> None:
    session.ledger.publish(session.broker, "t", plain("keyed", 5), CommitKey("w", 7))
    session.ledger.publish(session.broker, "t", plain("again", 5), CommitKey("w", 8))


def publish_many_frames(session: Session) -> None:
    session.ledger.publish(session.broker, "t", numbered("d", range(11)), CommitKey("w", 9))


def publish_payloads(session: Session) -> None:
    session.ledger.publish(session.broker, "t", plain("payload", 4), repeats=True)
    session.ledger.publish(session.broker, "t", [*plain("first", 3), *plain("payload", 5)], repeats=True)


def fill(session: Session) -> None:
    """The newest segment of the three partitions is full: the next publish rolls."""
    for place in range(2):
        session.ledger.publish(session.broker, "t", numbered("a", [100 + place]))


def publish_and_roll(session: Session) -> None:
    session.ledger.publish(session.broker, "t", numbered("a", [200]))
    session.ledger.publish(session.broker, "t", numbered("c", [200]))


def close(session: Session) -> None:
    session.broker.close()


def kept_for_readers(session: Session) -> None:
    """Three segments past retention; an important group has yet to read the last of them."""
    broker, ledger = session.broker, session.ledger
    ledger.create_topic(broker, "t", 2, retention_seconds=3600)
    ledger.trimmed.add("t")
    broker.register_group("t", "readers", important=True)
    for place in range(12):
        ledger.publish(
            broker, "t", [Message(b"old%d-%d" % (place, to), None, "a", None, 2 * place + to, to) for to in (0, 1)]
        )
    ledger.commit(broker, "t", "readers", {0: 8, 1: 8})


def all_outlived(session: Session) -> None:
    for seqno in range(100, 103):
        session.ledger.publish(session.broker, "t", numbered("a", [seqno]))
    session.ledger.commit(session.broker, "t", "readers", {p: e for p, (_, e) in session.broker.offsets("t").items()})


def short_lived(session: Session) -> None:
    session.ledger.create_topic(session.broker, "t", 2, retention_bytes=3000)
    session.ledger.trimmed.add("t")
    session.broker.register_group("t", "readers")


def many_sources(session: Session) -> None:
    """So many that rolling wrote no snapshot: only the segments that retention drops know of them."""
    broker, ledger = session.broker, session.ledger
    ledger.publish(broker, "t", [message for number in range(60) for message in numbered(f"s{number}", [number])])
    for seqno in range(8):
        ledger.publish(broker, "t", numbered("a", [seqno]))
    ledger.commit(broker, "t", "readers", {partition: end for partition, (_, end) in broker.offsets("t").items()})


def retain(session: Session) -> None:
    session.clock.time_us += DAY_US
    session.broker.maintenance.run_all()
    held = session.broker.committed("t", "readers")
    assert all(start <= held[partition] for partition, (start, _) in session.broker.offsets("t").items())


def create(session: Session) -> None:
    session.ledger.create_topic(session.broker, "made", 2)
    session.ledger.publish(session.broker, "made", numbered("a", [1, 2]))


def grow(session: Session) -> None:
    session.ledger.create_topic(session.broker, "t", 5)
    session.ledger.publish(session.broker, "t", [Message(b"in-new-%d" % place, partition=place) for place in range(5)])


def with_stage(session: Session) -> None:
    three_partitions(session)
    session.ledger.stage(session.broker, "t", plain("staged", 2), "left")


def delete(session: Session) -> None:
    session.ledger.delete_topic(session.broker, "t")


def stage_and_publish(session: Session) -> None:
    broker, ledger = session.broker, session.ledger
    ledger.stage(broker, "t", plain("piece0", 3), "one")
    ledger.stage(broker, "t", plain("piece1", 2), "one")
    ledger.stage(broker, "t", plain("piece2", 2, b"k"), "two")
    ledger.publish_staged(broker, "t", CommitKey("sink", 1))


def stage_and_publish_without_key(session: Session) -> None:
    session.ledger.stage(session.broker, "t", plain("piece0", 3), "one")
    session.ledger.publish_staged(session.broker, "t", None)


def stage_and_publish_in_pieces(session: Session) -> None:
    broker, ledger = session.broker, session.ledger
    ledger.stage(broker, "t", plain("piece0", 4, b"k"), "one")
    ledger.stage(broker, "t", plain("piece1", 3), "one")
    ledger.stage(broker, "t", plain("piece2", 6, b"l"), "two")
    ledger.publish_staged(broker, "t", CommitKey("sink", 1))


def two_topics(session: Session) -> None:
    three_partitions(session)
    session.ledger.create_topic(session.broker, "u", 2)
    session.broker.register_group("u", "readers")


def commit_two_topics(session: Session) -> None:
    broker, ledger = session.broker, session.ledger
    ledger.stage(broker, "t", [*plain("piece0", 2), *numbered("a", [500])], "one")
    ledger.stage(broker, "u", plain("piece1", 6, b"k"), "two")
    ledger.commit_transaction(broker, CommitKey("tx", 1), {("t", "readers"): {0: 2, 2: 1}, ("u", "readers"): {0: 0}})


def commit_transactions(session: Session) -> None:
    """One over topics and groups, one to a topic alone, and what follows them."""
    commit_two_topics(session)
    session.ledger.stage(session.broker, "u", plain("piece2", 1), "three")
    session.ledger.commit_transaction(session.broker, CommitKey("tx", 2))
    session.ledger.publish(session.broker, "u", plain("after", 1))


def transaction_on_record(session: Session) -> None:
    """A transaction, and what the journal has of it before the store is closed."""
    two_topics(session)
    commit_two_topics(session)
    assert isinstance(session.broker.store, DiskStore)
    RECORD[:] = session.broker.store.catalog.commits.begin_redo()
    assert len(RECORD) == 2


def undo_last_frames(directory: Path) -> None:
    """As if the process had died right after the decision: no last frame is in its log, and nothing was closed."""
    with closing(sqlite3.connect(directory / CATALOG)) as catalog, catalog:
        columns = "number, topicid, segment, before_position, before_checksum, position, frame"
        catalog.executemany(f"INSERT INTO all_journal ({columns}) VALUES (7, ?, ?, ?, ?, ?, ?)", RECORD)
    for entry in RECORD:
        log = directory / "topics" / f"{entry.topic_id:09d}" / f"{entry.segment:020d}.log"
        os.truncate(log, entry.position)
        for path in log.parent.iterdir():
            if path.suffix != ".log":
                path.unlink()


def torn(directory: Path) -> None:
    """What a crash may leave: half a frame, half a file that was to be renamed, half a segment, no index."""
    (log,) = (directory / "topics").glob("*/*4.log")
    log.with_suffix(".index").unlink()
    frames = log.read_bytes()
    log.write_bytes(frames + frames[-320:-64])
    log.with_name("00000000000000000006.log").write_bytes(b"HRsg")
    log.with_name("00000000000000000006.state.tmp").write_bytes(b"HRst")
    (directory / "topics" / "000000009").mkdir()
    (directory / "topics" / "000000009" / "00000000000000000000.log").write_bytes(b"HRsg")
    (directory / "stages" / f"1-{0:040x}").write_bytes(b"HRfr")


SCENARIOS = [
    Scenario("publish to one partition", one_partition, live, publish_one),
    Scenario("publish to one partition after a clean close", one_partition, act=publish_one),
    Scenario("publish to many partitions", three_partitions, live, publish_over_partitions, options=ONE_SEGMENT),
    Scenario("publish from sources", three_partitions, live, publish_sources, options=ONE_SEGMENT),
    Scenario("publish with a commit key", three_partitions, live, publish_with_key, options=ONE_SEGMENT),
    Scenario(
        "publish more than a frame",
        three_partitions,
        live,
        publish_many_frames,
        options=ONE_SEGMENT,
        seeds=20,
        settings=SMALL_FRAMES,
    ),
    Scenario(
        "publish more than a frame into a new segment",
        three_partitions,
        fill,
        publish_many_frames,
        segments_made=1,
        settings=SMALL_FRAMES,
    ),
    Scenario("publish by payload", by_payload, live, publish_payloads),
    Scenario("roll", three_partitions, fill, publish_and_roll, segments_made=1),
    Scenario("roll without syncs", three_partitions, fill, publish_and_roll, options=UNSYNCED, segments_made=1),
    Scenario("make room and use it", one_partition, live, publish_one, options=WITH_ROOM, seeds=4),
    Scenario("use room and roll", one_partition, enter_room, publish_one, options=WITH_ROOM, seeds=3, segments_made=1),
    Scenario("seal and close with room", one_partition, enter_room, close, options=WITH_ROOM),
    Scenario("seal and close", three_partitions, live, close),
    Scenario("seal and close a full segment", three_partitions, fill, close),
    Scenario("retention", kept_for_readers, live, retain, segments_made=1),
    Scenario("retention of everything", kept_for_readers, all_outlived, retain, segments_made=1),
    Scenario("retention of many sources", short_lived, many_sources, retain, seeds=6),
    Scenario("create a topic", three_partitions, act=create, segments_made=1),
    Scenario("create the first topic", act=create, segments_made=1),
    Scenario("add partitions", three_partitions, live, grow),
    Scenario("delete a topic", with_stage, live, delete),
    Scenario("stage and publish", three_partitions, live, stage_and_publish),
    Scenario("stage and publish in pieces", three_partitions, live, stage_and_publish_in_pieces, settings=TINY_FRAMES),
    Scenario("stage and publish without a commit key", three_partitions, live, stage_and_publish_without_key),
    Scenario(
        "commit transactions in pieces", two_topics, fill, commit_transactions, segments_made=2, settings=TINY_FRAMES
    ),
    Scenario(
        "commit transactions without syncs", two_topics, live, commit_transactions, options=UNSYNCED, segments_made=1
    ),
    Scenario(
        "commit transactions with room",
        two_topics,
        live,
        commit_transactions,
        options=WITH_ROOM,
        seeds=1,
        segments_made=1,
    ),
    Scenario("open after a decision", transaction_on_record, opens=True, spoil=undo_last_frames),
    Scenario("open a new store", act=create, opens=True, is_new=True, segments_made=1),
    Scenario("open after a crash", three_partitions, opens=True, spoil=torn),
    Scenario("open after a clean close", three_partitions, opens=True),
]

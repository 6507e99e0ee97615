"""What every engine does. A subclass gives the fixture `place`; `reopen` stands in the middle of every test.

An engine that joins needs a class with the methods of `builders.Place` and two lines in `test_contract`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import (
    Closed,
    MessagesHeld,
    OffsetOutOfRange,
    PartitionNotFound,
    StorageError,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
)
from headrace.core.groups.group import Group
from headrace.core.groups.member import Member
from headrace.core.groups.notes import CommitNote
from headrace.core.ids import Kind
from headrace.core.limits import PIPELINES_PER_TOPIC_MAX
from headrace.core.messages import READ_SCHEMA, STORED_SCHEMA, message_sizes
from headrace.core.names import topic_key
from headrace.core.publish.placed import place_ahead
from headrace.core.publish.plan import plan_reset
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.reports.pipelines import PipelineReport
from headrace.core.rights import Grant, Right
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.catalog import GroupWrite, TopicRecord
from headrace.storage.interface import Fences, TopicLog
from headrace.storage.tokens import TokenRecord
from tests.group_writes import drop_offsets, put_group, put_offsets, remove_group
from tests.storage.builders import (
    CREATED_US,
    EVERYTHING,
    NOW_US,
    Place,
    Topic,
    batch_of,
    commit_of,
    publish,
    state_of,
    values,
    values_in,
)

SECOND_US = 1_000_000
KINDS: tuple[Kind, Kind] = ("consumer", "producer")

NAMES = [
    "Orders",
    'it\'s "quoted" `twice`',
    "'; DROP TABLE all_topics; --",
    "all_topics",
    "../../etc/passwd",
    "naïve 🚰🛞 日本語",
    "%41?x=1#y & more",
    "N" * 255,
    "🛞" * 255,
]

FULL_ROW: dict[str, Any] = {
    "value": b"\0\xff value",
    "key": b"key",
    "attributes": [("a", b"1"), ("a", b"2"), ("", b"")],
    "codec": "zstd",
    "created_at": datetime(2020, 2, 29, 12, 30, 1, 234567, UTC),
    "producer_id": "till-7",
    "message_group_id": "Gruppe ä",
    "seqno": (1 << 63) - 1,
    "partition": 1,
}


def settings_of(**settings: Any) -> TopicSettings:
    return DEFAULT_SETTINGS.change(**settings)


def sizes_in(batch: pa.RecordBatch) -> list[int]:
    sizes: list[int] = message_sizes(batch["value"], batch["key"], batch["attributes"]).tolist()
    return sizes


class CatalogContract:
    """Topics, groups and offsets."""

    def test_the_last_report_of_each_pipeline_is_kept_with_its_topic(self, place: Place) -> None:
        pipelines = place.store.catalog.pipelines
        orders, other = Topic(place, "Orders"), Topic(place, "other")
        first = PipelineReport(run_id="1", state="running", started_us=1, error="'; DROP \0 🛞")
        last = msgspec.structs.replace(first, state="failed")
        for topic, report, now_us in ((orders, first, 10), (other, first, 20), (orders, last, 30)):
            pipelines.put(topic.record.id, topic.record.name, "land", report, now_us)
        place.reopen()
        pipelines = place.store.catalog.pipelines
        assert pipelines.all() == [(orders.record.id, "land", last, 30), (other.record.id, "land", first, 20)]
        assert pipelines.forget(30) == 1
        assert [row[0] for row in pipelines.all()] == [orders.record.id]
        place.store.catalog.remove_topic(orders.record.id)
        assert pipelines.all() == []
        with pytest.raises(TopicDeleted):
            pipelines.put(orders.record.id, "Orders", "land", last, 40)

    def test_of_too_many_pipelines_of_a_topic_the_newest_are_kept(self, place: Place) -> None:
        pipelines = place.store.catalog.pipelines
        orders, other = Topic(place, "Orders"), Topic(place, "other")
        report = PipelineReport(run_id="1", state="running", started_us=1)
        pipelines.put(other.record.id, "other", "old", report, 0)
        for number in range(PIPELINES_PER_TOPIC_MAX + 2):
            pipelines.put(orders.record.id, "Orders", f"land-{number:03}", report, number)
        names = [name for topic_id, name, _, _ in pipelines.all() if topic_id == orders.record.id]
        assert (len(names), names[0]) == (PIPELINES_PER_TOPIC_MAX, "land-002")
        assert [name for topic_id, name, _, _ in pipelines.all() if topic_id == other.record.id] == ["old"]

    def test_space_is_that_of_a_file_system_if_there_is_one(self, place: Place) -> None:
        assert place.store.can_write()
        space = place.store.disk_space()
        assert (space is not None) == place.url.startswith("file:")
        assert space is None or 0 < space[1] <= space[0]

    def test_a_store_with_files_of_its_own_checks_them_while_it_is_open(self, place: Place) -> None:
        Topic(place).publish(values(b"a"))
        looked = place.store.examine()
        assert (looked is not None) == place.url.startswith("file:")
        for report in looked or ():
            assert report.findings == []

    def test_a_new_store_has_no_topics(self, place: Place) -> None:
        place.reopen()
        assert place.store.catalog.topics() == []

    def test_topics_come_back_as_they_were_made_in_the_order_they_were_made(self, place: Place) -> None:
        settings = settings_of(
            retention_seconds=60,
            retention_bytes=1 << 40,
            deduplication="payload",
            deduplication_window_seconds=7,
            deduplication_scope="store",
            codecs=("zstd", "raw"),
            message_bytes_max=1 << 24,
        )
        made = [
            Topic(place, "zebra", 3, now_us=NOW_US).record,
            Topic(place, "Aardvark", 10_000, settings, now_us=NOW_US + 1).record,
        ]
        place.reopen()
        assert place.store.catalog.topics() == made
        assert made[1] == TopicRecord(made[1].id, "Aardvark", "aardvark", 10_000, settings, NOW_US + 1)

    @pytest.mark.parametrize("name", NAMES)
    def test_any_name_keeps_its_topic(self, place: Place, name: str) -> None:
        topic = Topic(place, name)
        topic.publish(values(b"a"))
        put_group(place.store.catalog, topic.record.id, Group(name), {0: 1})
        place.reopen()
        assert [(record.name, record.key) for record in place.store.catalog.topics()] == [(name, topic_key(name))]
        assert [group.name for group in place.store.catalog.groups(topic.record.id)] == [name]
        assert place.store.catalog.offsets(topic.record.id, name) == {0: 1}
        assert values_in(topic.log) == [b"a"]

    def test_one_key_names_one_topic(self, place: Place) -> None:
        first = Topic(place, "Orders")
        place.reopen()
        with pytest.raises(TopicExists):
            Topic(place, "ORDERS")
        assert place.store.catalog.topics() == [first.record]
        second = Topic(place, "Orders 2")
        assert [record.id for record in place.store.catalog.topics()] == [first.record.id, second.record.id]

    def test_a_topic_whose_log_cannot_be_made_is_not_there(self, place: Place) -> None:
        def refuse(topic: TopicRecord) -> None:
            raise OSError("no room")

        with pytest.raises(OSError, match="no room"):
            place.store.catalog.add_topic("a", "a", 1, DEFAULT_SETTINGS, NOW_US, refuse)
        place.reopen()
        assert place.store.catalog.topics() == []
        assert Topic(place, "a").record.name == "a"

    def test_partitions_and_settings_of_a_topic_change(self, place: Place) -> None:
        other = Topic(place, "other").record
        topic = Topic(place)
        changed = TopicRecord(topic.record.id, "Orders", "orders", 5, settings_of(retention_seconds=9), CREATED_US)
        place.store.catalog.change_topic(topic.record, lambda _: changed)
        topic.log.add_partitions(5)
        place.reopen()
        assert place.store.catalog.topics() == [other, changed]

    def test_ids_are_never_given_twice(self, place: Place) -> None:
        ids = []
        for _ in range(3):
            topic = Topic(place)
            ids.append(topic.record.id)
            topic.delete()
            place.reopen()
        assert sorted(set(ids)) == ids

    def test_a_removed_topic_takes_its_groups_and_offsets_with_it_and_no_others(self, place: Place) -> None:
        doomed, kept = Topic(place, "doomed"), Topic(place, "kept")
        for topic in (doomed, kept):
            put_group(place.store.catalog, topic.record.id, Group("billing"), {0: 7})
        doomed.delete()
        place.reopen()
        catalog = place.store.catalog
        assert (catalog.groups(doomed.record.id), catalog.offsets(doomed.record.id, "billing")) == ([], {})
        assert catalog.groups(kept.record.id) == [Group("billing")]
        assert catalog.offsets(kept.record.id, "billing") == {0: 7}

    def test_groups_come_back_by_name_with_their_members(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        groups = [
            Group("b", consumers=3, important=True, read_from="latest", generation=1 << 40),
            Group("a", read_from=NOW_US),
            Group("c", members={"m": Member(1, 2, {0: 3, 1: 2}, {1: 3}, topic_index=0)}),
        ]
        for group in groups:
            put_group(place.store.catalog, topic_id, group)
        place.reopen()
        assert place.store.catalog.groups(topic_id) == [groups[1], groups[0], groups[2]]
        (found,) = place.store.catalog.groups_by_topic().items()
        assert (found[0], sorted(found[1], key=lambda group: group.name)) == (
            topic_id,
            [groups[1], groups[0], groups[2]],
        )
        assert place.store.catalog.groups_with_members() == [(topic_id, groups[2])]

    def test_a_group_that_is_put_again_is_changed_and_keeps_its_offsets(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        put_group(place.store.catalog, topic_id, Group("a"), {0: 5, 1: 6})
        place.reopen()
        changed = Group("a", consumers=2, important=True, generation=1)
        put_group(place.store.catalog, topic_id, changed)
        assert place.store.catalog.groups(topic_id) == [changed]
        assert place.store.catalog.offsets(topic_id, "a") == {0: 5, 1: 6}

    def test_offsets_are_stored_by_partition_and_group(self, place: Place) -> None:
        topic_id, other_id = Topic(place).record.id, Topic(place, "other").record.id
        catalog = place.store.catalog
        put_offsets(catalog, topic_id, "a", {partition: partition for partition in range(10_000)})
        put_offsets(catalog, topic_id, "b", {0: 1})
        put_offsets(catalog, other_id, "a", {0: 2})
        place.reopen()
        catalog = place.store.catalog
        put_offsets(catalog, topic_id, "a", {0: (1 << 63) - 1, 3: 0})
        put_offsets(catalog, topic_id, "a", {})
        stored = catalog.offsets(topic_id, "a")
        assert len(stored) == 10_000
        assert (stored[0], stored[3], stored[9_999]) == ((1 << 63) - 1, 0, 9_999)
        assert (catalog.offsets(topic_id, "b"), catalog.offsets(other_id, "a")) == ({0: 1}, {0: 2})
        assert catalog.offsets(topic_id, "c") == {}
        drop_offsets(catalog, topic_id, "a", [0, 3, 20_000])
        assert sorted(catalog.offsets(topic_id, "a"))[:3] == [1, 2, 4]
        assert (catalog.offsets(topic_id, "b"), catalog.offsets(other_id, "a")) == ({0: 1}, {0: 2})

    def test_what_is_said_with_a_commit_is_stored_with_its_offset(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        notes = {0: CommitNote(-2), 1: CommitNote((1 << 63) - 1, 3, b"\x00" * 4096)}
        place.store.catalog.write_groups([GroupWrite(topic_id, "a", Group("a"), {0: 0, 1: 1, 2: 2}, notes)])
        place.reopen()
        catalog = place.store.catalog
        assert catalog.noted(topic_id, "a") == {0: (0, notes[0]), 1: (1, notes[1]), 2: (2, None)}
        for number in range(2):
            again = {1: CommitNote(5, -1, b"again")}
            catalog.write_groups([GroupWrite(topic_id, "a", offsets={0: number, 1: 1}, notes=again)])
            assert catalog.noted(topic_id, "a") == {0: (number, None), 1: (1, again[1]), 2: (2, None)}

    def test_how_much_is_said_is_known_without_reading_it(self, place: Place) -> None:
        topic, other = Topic(place).record.id, Topic(place, "other").record.id
        catalog = place.store.catalog
        said = {0: CommitNote(0, -1, b"\xc3\xa4" * 5), 1: CommitNote(0, -1, b""), 2: CommitNote(0, -1, b"12345")}
        for topic_id, group in ((topic, "a"), (topic, "b"), (other, "a")):
            notes = said if group == "a" else {0: said[0]}
            catalog.write_groups([GroupWrite(topic_id, group, Group(group), dict.fromkeys(range(4), 0), notes)])
        assert (catalog.note_lengths(topic, "a"), catalog.note_lengths(topic, "c")) == ({0: 10, 2: 5}, {})
        assert catalog.note_sizes(topic, 0) == {"a": 15, "b": 10}
        assert (catalog.note_sizes(topic, 10), catalog.note_sizes(topic, 15)) == ({"a": 15}, {})

    def test_changes_of_many_groups_are_stored_together_or_not_at_all(self, place: Place) -> None:
        topic_id, other_id = Topic(place).record.id, Topic(place, "other").record.id
        catalog = place.store.catalog
        put_group(catalog, topic_id, Group("gone"), {0: 1})
        writes = [
            GroupWrite(topic_id, "gone", is_removed=True),
            GroupWrite(topic_id, "new", Group("new"), {0: 1, 1: 2}),
            GroupWrite(other_id, "new", offsets={0: 3}),
        ]
        with pytest.raises(StoreUnavailable):
            catalog.write_groups([*writes, GroupWrite(other_id + 1_000, "lost", offsets={0: 1})])
        assert (catalog.groups(topic_id), catalog.offsets(topic_id, "gone")) == ([Group("gone")], {0: 1})
        catalog.write_groups(writes)
        place.reopen()
        catalog = place.store.catalog
        assert (catalog.groups(topic_id), catalog.offsets(topic_id, "gone")) == ([Group("new")], {})
        assert (catalog.offsets(topic_id, "new"), catalog.offsets(other_id, "new")) == ({0: 1, 1: 2}, {0: 3})

    def test_a_removed_group_takes_its_offsets_with_it_and_no_others(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        for name in ("a", "b"):
            put_group(place.store.catalog, topic_id, Group(name), {0: 3})
        remove_group(place.store.catalog, topic_id, "a")
        place.reopen()
        catalog = place.store.catalog
        assert [group.name for group in catalog.groups(topic_id)] == ["b"]
        assert (catalog.offsets(topic_id, "a"), catalog.offsets(topic_id, "b")) == ({}, {0: 3})
        put_group(catalog, topic_id, Group("c"))
        assert catalog.all_offsets(topic_id) == {"b": {0: 3}, "c": {}}

    def test_consumers_and_producers_are_numbered_apart_in_each_topic(self, place: Place) -> None:
        first, second = Topic(place, "a").record.id, Topic(place, "b").record.id
        catalog = place.store.catalog
        assert [catalog.take_number(first, "consumer") for _ in range(3)] == [1, 2, 3]
        assert catalog.take_number(first, "producer") == 1
        place.reopen()
        catalog = place.store.catalog
        assert catalog.take_number(first, "consumer") == 4
        given = [catalog.numbers_given(topic, kind) for topic in (first, second) for kind in KINDS]
        assert given == [4, 1, 0, 0]
        assert catalog.take_number(second + 1, "consumer") is None
        assert catalog.numbers_given(second + 1, "producer") is None

    def test_numbers_are_given_once_however_many_ask(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        with ThreadPoolExecutor(8) as threads:
            taken = list(threads.map(lambda _: place.store.catalog.take_number(topic_id, "producer"), range(40)))
        place.reopen()
        assert sorted(number or 0 for number in taken) == list(range(1, 41))
        assert place.store.catalog.numbers_given(topic_id, "producer") == 40

    def test_consumers_that_were_not_seen_for_long_are_forgotten_once(self, place: Place) -> None:
        first, second = Topic(place, "a").record.id, Topic(place, "b").record.id
        catalog = place.store.catalog
        for topic_id, name in ((first, "queue-1"), (first, "queue-2"), (second, "queue-1"), (second, "other")):
            put_group(catalog, topic_id, Group(name))
        catalog.see_consumer(first, "queue-1", 5)
        assert catalog.forget_consumers("queue-", 4, 10) == []
        place.reopen()
        catalog = place.store.catalog
        catalog.see_consumer(first, "queue-2", 20)
        assert sorted(catalog.forget_consumers("queue-", 10, 20)) == [(first, "queue-1"), (second, "queue-1")]
        # Their groups are still there, so they count as seen now.
        assert catalog.forget_consumers("queue-", 19, 30) == []
        assert len(catalog.forget_consumers("queue-", 30, 31)) == 3
        catalog.remove_topic(first)
        catalog.remove_topic(second)
        assert catalog.forget_consumers("queue-", 99, 100) == []

    def test_tokens_come_back_in_the_order_they_were_made(self, place: Place) -> None:
        grants = (Grant("orders*", frozenset({Right.READ, Right.PUBLISH})), Grant("*", frozenset()))
        tokens = [
            TokenRecord("b", "it's 🛞", "hash", grants, NOW_US),
            TokenRecord("a", "Second", "other", (), NOW_US + 1, expires_us=NOW_US + 9, used_us=NOW_US + 2),
        ]
        for token in reversed(tokens):
            place.store.catalog.tokens.add(token)
        place.reopen()
        assert place.store.catalog.tokens.all() == tokens
        with pytest.raises(StorageError):
            place.store.catalog.tokens.add(tokens[0])
        assert place.store.catalog.tokens.remove("b")
        assert not place.store.catalog.tokens.remove("b")
        place.reopen()
        assert place.store.catalog.tokens.all() == tokens[1:]

    def test_a_token_takes_the_place_of_another(self, place: Place) -> None:
        old = TokenRecord("old", "till", "hash", (), NOW_US)
        place.store.catalog.tokens.add(old)
        new = TokenRecord("new", "till", "other", (), NOW_US + 1)
        place.store.catalog.tokens.replace(new, {"old": NOW_US + 5, "nobody": NOW_US})
        place.reopen()
        assert place.store.catalog.tokens.all() == [replace(old, expires_us=NOW_US + 5), new]

    def test_the_last_use_of_a_token_is_the_latest_anyone_saw(self, place: Place) -> None:
        place.store.catalog.tokens.add(TokenRecord("a", "till", "hash", (), NOW_US))
        for used_us, expected_us in ((5, 5), (3, 5), (7, 7)):
            place.store.catalog.tokens.put_uses({"a": used_us, "nobody": 9})
            assert [token.used_us for token in place.store.catalog.tokens.all()] == [expected_us]

    def test_a_topic_that_is_not_there_can_have_neither_groups_nor_offsets(self, place: Place) -> None:
        topic = Topic(place)
        topic.delete()
        place.reopen()
        with pytest.raises(StorageError):
            put_group(place.store.catalog, topic.record.id, Group("late"))
        with pytest.raises(StorageError):
            put_offsets(place.store.catalog, topic.record.id, "late", {0: 1})
        assert place.store.catalog.groups(topic.record.id) == []
        assert place.store.catalog.offsets(topic.record.id, "late") == {}

    def test_many_threads_may_ask_at_once(self, place: Place) -> None:
        topic_id = Topic(place).record.id

        def work(thread: int) -> None:
            for number in range(10):
                put_group(place.store.catalog, topic_id, Group(f"g{thread}", generation=number), {thread: number})

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        place.reopen()
        assert {group.name: group.generation for group in place.store.catalog.groups(topic_id)} == {
            f"g{thread}": 9 for thread in range(8)
        }

    def test_a_closed_catalog_says_so(self, place: Place) -> None:
        place.reopen()
        catalog = place.store.catalog
        catalog.close()
        with pytest.raises(Closed):
            catalog.topics()


class LogContract:
    """The messages of a topic."""

    def test_a_new_log_is_empty_and_can_be_read(self, place: Place) -> None:
        topic = Topic(place, partitions=3)
        place.reopen()
        offsets = topic.log.offsets()
        assert offsets.by_partition() == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
        batch = topic.log.read(2, 0, 10, EVERYTHING)
        assert (batch.num_rows, batch.schema) == (0, READ_SCHEMA)
        assert topic.log.first_at(2, NOW_US) == 0
        assert topic.log.time_of(2, 0) is None
        assert topic.log.drop_outlived(settings_of(retention_seconds=1), None, NOW_US + 10 * SECOND_US) == 0
        assert (topic.log.failure, topic.log.sync_seconds.count) == (None, 0)

    def test_a_message_comes_back_as_it_was_sent(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(batch_of([FULL_ROW, {"partition": 1}]))
        place.reopen()
        batch = topic.log.read(1, 0, 10, EVERYTHING)
        assert batch.schema == READ_SCHEMA
        full, bare = batch.to_pylist()
        written = datetime.fromtimestamp(NOW_US / SECOND_US, UTC)
        assert full == {**FULL_ROW, "offset": 0, "timestamp": written}
        nothing = dict.fromkeys(STORED_SCHEMA.names) | {"value": b""}
        assert bare == {**nothing, "partition": 1, "offset": 1, "timestamp": written}

    def test_null_and_empty_come_back_as_they_were_sent(self, place: Place) -> None:
        topic = Topic(place)
        entries: list[Any] = [None, [], [("n", None)], [("n", None), ("n", b""), ("m", b"1")]]
        rows = [
            {"value": value, "key": key, "attributes": attributes, "partition": 1}
            for value in (None, b"", b"v")
            for key in (None, b"", b"k")
            for attributes in entries
        ]
        # Together; without any value; one by one.
        commits = [rows, rows[: 3 * len(entries)], *([row] for row in rows)]
        for commit in commits:
            topic.publish(batch_of(commit))
        place.reopen()
        batch = topic.log.read(1, 0, 100, EVERYTHING)
        found = batch.select(["value", "key", "attributes", "partition"]).to_pylist()
        assert found == [row for commit in commits for row in commit]
        assert sizes_in(batch)[:5] == [0, 0, 1, 4, 0]

    def test_null_is_no_payload_and_no_retry_of_an_empty_value(self, place: Place) -> None:
        topic = Topic(place, settings=settings_of(deduplication="payload", deduplication_window_seconds=100))
        values: list[bytes | None] = [None, b"", None, b""]
        assert topic.publish(batch_of([{"value": value} for value in values]))[0].outcome.tolist() == [0, 0, 0, 2]
        place.reopen()
        assert topic.publish(batch_of([{"value": value} for value in values]))[0].outcome.tolist() == [0, 2, 0, 2]
        topic.publish(batch_of([{"value": None, "producer_id": "p", "seqno": 9}]))
        place.reopen()
        again = batch_of([{"value": value, "producer_id": "p", "seqno": 9} for value in (None, b"")])
        assert topic.publish(again)[0].outcome.tolist() == [1, 4]
        fresh = batch_of([{"value": value, "producer_id": "q", "seqno": 1} for value in (None, b"", None)])
        assert topic.publish(fresh)[0].outcome.tolist() == [0, 4, 1]

    def test_offsets_are_dense_in_each_partition_over_all_commits(self, place: Place) -> None:
        topic = Topic(place, partitions=3)
        sent: list[list[bytes]] = [[], [], []]
        for number in range(12):
            batch = batch_of([{"value": b"%d" % (10 * number + row)} for row in range(number % 5 + 1)])
            receipts = topic.publish(batch)[0]
            for value, partition, offset in zip(
                batch["value"].to_pylist(), receipts.partition.tolist(), receipts.offset.tolist(), strict=True
            ):
                assert offset == len(sent[partition])
                sent[partition].append(value)
            if number % 4 == 3:
                place.reopen()
        assert [values_in(topic.log, partition) for partition in range(3)] == sent
        assert topic.log.offsets().end.tolist() == [len(part) for part in sent]

    def test_a_read_may_begin_anywhere_and_end_anywhere(self, place: Place) -> None:
        topic = Topic(place)
        for number in range(8):
            topic.publish(values(*(b"%d" % (3 * number + row) for row in range(3)), partition=1))
        place.reopen()
        topic.publish(values(b"24", partition=1))
        for offset in range(26):
            for messages_max in (1, 2, 3, 4, 7, 100):
                batch = topic.log.read(1, offset, messages_max, EVERYTHING)
                expected = [b"%d" % value for value in range(offset, min(25, offset + messages_max))]
                assert batch["value"].to_pylist() == expected
                assert batch["offset"].to_pylist() == [int(value) for value in expected]

    def test_a_read_stays_within_its_bytes_and_gives_at_least_one(self, place: Place) -> None:
        topic = Topic(place)
        rows = [{"value": b"v" * (7 * number), "key": b"key", "attributes": [("n", b"12")]} for number in range(20)]
        for row in rows:
            topic.publish(batch_of([{**row, "partition": 0}]))
        topic.publish(batch_of([{**row, "partition": 0} for row in rows]))
        place.reopen()
        for bytes_max in (0, 1, 6, 100, 1_000, 5_000, EVERYTHING):
            for offset in range(0, 40, 3):
                batch = topic.log.read(0, offset, 1_000, bytes_max)
                sizes = sizes_in(batch)
                assert len(sizes) == 1 or (len(sizes) > 1 and sum(sizes) <= bytes_max)
                assert batch["offset"].to_pylist() == list(range(offset, offset + len(sizes)))
        assert topic.log.read(0, 0, 1_000, EVERYTHING).num_rows == 40

    def test_a_message_larger_than_the_limit_is_read_alone(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a", b"x" * 5_000, b"c"))
        topic.publish(values(b"y" * 5_000))
        place.reopen()
        for offset, size in ((1, 5_000), (3, 5_000)):
            batch = topic.log.read(0, offset, 10, 100)
            assert [len(value) for value in batch["value"].to_pylist()] == [size]

    @pytest.mark.parametrize("offset", [-1, 4, 1 << 62])
    def test_an_offset_that_is_not_there_is_refused_with_the_valid_range(self, place: Place, offset: int) -> None:
        topic = Topic(place)
        topic.publish(values(b"a", b"b", b"c"))
        place.reopen()
        with pytest.raises(OffsetOutOfRange) as caught:
            topic.log.read(0, offset, 10, EVERYTHING)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.start, error.end) == ("Orders", 0, offset, 0, 3)
        assert topic.log.read(0, 3, 10, EVERYTHING).num_rows == 0

    @pytest.mark.parametrize("partition", [-1, 2, 1 << 40])
    def test_a_partition_that_is_not_there_is_refused(self, place: Place, partition: int) -> None:
        topic = Topic(place)
        place.reopen()
        with pytest.raises(PartitionNotFound) as caught:
            topic.log.read(partition, 0, 10, EVERYTHING)
        assert (caught.value.partition, caught.value.partitions) == (partition, 2)

    def test_the_offset_of_a_time_is_that_of_the_first_message_at_or_after_it(self, place: Place) -> None:
        topic = Topic(place)
        times = [NOW_US + second * SECOND_US for second in (0, 1, 10, 20, 21, 30, 40, 50)]
        written: list[list[int]] = [[], []]
        for number, time_us in enumerate(times):
            partition = number % 2
            topic.publish(values(b"a", b"b", partition=partition), now_us=time_us)
            written[partition] += [time_us, time_us]
            if number == 4:
                place.reopen()
        for partition in (0, 1):
            for time_us in {time_us + step for time_us in times for step in (-1, 0, 1)}:
                expected = sum(other < time_us for other in written[partition])
                assert topic.log.first_at(partition, time_us) == expected
            assert [topic.log.time_of(partition, offset) for offset in range(-1, 9)] == [
                None,
                *written[partition],
                None,
            ]

    def test_the_time_of_messages_never_goes_back(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"), now_us=NOW_US + 100)
        place.reopen(now_us=NOW_US - 500)
        topic.publish(values(b"b"), now_us=NOW_US)
        times = [topic.log.time_of(0, offset) or 0 for offset in (0, 1)]
        assert times[0] == NOW_US + 100
        assert times[1] >= times[0]

    def test_a_commit_without_frames_writes_nothing(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"))
        before = state_of(topic.log)
        topic.log.commit(lambda state, fences: [])
        assert state_of(topic.log) == before
        place.reopen()
        assert values_in(topic.log) == [b"a"]

    def test_a_decision_that_fails_writes_nothing(self, place: Place) -> None:
        topic = Topic(place)

        def fail(state: TopicState, fences: Fences) -> Sequence[Commit]:
            raise ValueError("undecided")

        with pytest.raises(ValueError, match="undecided"):
            topic.log.commit(fail)
        topic.publish(values(b"a"))
        place.reopen()
        assert values_in(topic.log) == [b"a"]

    def test_frames_may_be_planned_one_by_one(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"))
        topic.log.commit(
            lambda state, fences: iter(commit_of([values(b"b"), values(b"c", b"d"), values(b"e")], state)[0])
        )
        assert values_in(topic.log) == [b"a", b"b", b"c", b"d", b"e"]
        place.reopen()
        assert values_in(topic.log) == [b"a", b"b", b"c", b"d", b"e"]

    @pytest.mark.parametrize("planned", [0, 1, 2])
    def test_planning_that_fails_between_frames_leaves_nothing_of_them(self, place: Place, planned: int) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"))
        before = state_of(topic.log)

        def fail(state: TopicState, fences: Fences) -> Iterator[Commit]:
            yield from commit_of([values(b"x"), values(b"y"), values(b"z")], state)[0][:planned]
            raise ValueError("undecided")

        with pytest.raises(ValueError, match="undecided"):
            topic.log.commit(fail)
        assert state_of(topic.log) == before
        topic.publish(values(b"b"))
        assert values_in(topic.log) == [b"a", b"b"]
        place.reopen()
        assert values_in(topic.log) == [b"a", b"b"]

    def test_a_commit_of_keys_alone_is_remembered(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(), keys=(CommitKey("spark 'x'", 3), CommitKey("other", 0)))
        place.reopen()
        assert topic.log.state.writers == {"spark 'x'": 3, "other": 0}
        assert topic.log.offsets().end.tolist() == [0, 0]
        topic.publish(values(b"a"))
        place.reopen()
        assert values_in(topic.log) == [b"a"]

    def test_the_frames_of_a_commit_become_visible_together(self, place: Place) -> None:
        topic = Topic(place)
        log, rows = topic.log, 5
        seen: set[tuple[int, int]] = set()
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                first, second = log.offsets().end.tolist()
                seen.add((first % (2 * rows), second % rows))
                time.sleep(0.0001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        parts = [values(*[b"x"] * rows), values(*[b"y"] * rows, partition=1), values(*[b"z"] * rows)]
        try:
            for _ in range(20):
                topic.publish(*parts)
        finally:
            stop.set()
            watcher.join()
        assert seen == {(0, 0)}
        place.reopen()
        assert values_in(topic.log) == ([b"x"] * rows + [b"z"] * rows) * 20
        assert values_in(topic.log, 1) == [b"y"] * rows * 20

    def test_readers_follow_a_writer(self, place: Place) -> None:
        topic = Topic(place)
        log = topic.log
        total = 80
        stop = threading.Event()

        def follow(partition: int) -> list[bytes]:
            found: list[bytes] = []
            while len(found) < total and not stop.is_set():
                batch = log.read(partition, len(found), 1 + len(found) % 7, EVERYTHING)
                assert log.first_at(partition, NOW_US + len(found)) >= len(found)
                found += batch["value"].to_pylist()
                time.sleep(0.001)
            return found

        with ThreadPoolExecutor(4) as threads:
            readers = [threads.submit(follow, partition) for partition in (0, 1, 0, 1)]
            try:
                for number in range(total):
                    rows = [{"value": b"%d" % number, "partition": partition} for partition in (0, 1)]
                    topic.publish(batch_of(rows), now_us=NOW_US + number)
                expected = [b"%d" % number for number in range(total)]
                assert [reader.result(timeout=30) for reader in readers] == [expected] * 4
            finally:
                stop.set()
        place.reopen()
        assert values_in(topic.log) == expected

    def test_what_planning_knows_survives(self, place: Place) -> None:
        settings = settings_of(deduplication="payload", deduplication_window_seconds=100)
        topic = Topic(place, partitions=4, settings=settings)
        for number in range(7):
            rows: list[dict[str, Any]] = [
                {"value": b"v%d" % number},
                {"value": b"w%d" % number, "producer_id": f"p{number % 3}", "seqno": number},
                {"value": b"x%d" % number, "producer_id": "p", "message_group_id": f"g{number}", "key": b"k"},
            ]
            now_us = NOW_US + number * SECOND_US
            topic.publish(batch_of(rows), now_us=now_us, keys=(CommitKey(f"w{number % 2}", number),))
        before = state_of(topic.log)
        place.reopen(now_us=NOW_US + 7 * SECOND_US)
        assert state_of(topic.log) == before
        repeated: list[dict[str, Any]] = [
            {"value": b"w6", "producer_id": "p0", "seqno": 6},
            {"value": b"new", "producer_id": "p0", "seqno": 6},
            {"value": b"v6"},
            {"value": b"fresh"},
        ]
        receipts = topic.publish(batch_of(repeated), now_us=NOW_US + 8 * SECOND_US)[0]
        assert receipts.outcome.tolist() == [1, 4, 2, 0]

    def test_the_window_and_the_state_can_be_looked_at_without_a_commit(self, place: Place) -> None:
        topic = Topic(place, settings=settings_of(deduplication="payload"))
        topic.publish(values(b"a", b"b"))
        place.reopen()
        assert len(topic.log.window()) == 2
        assert topic.log.peek() is topic.log.state

    def test_added_partitions_can_be_used_at_once(self, place: Place) -> None:
        topic = Topic(place, partitions=1)
        topic.publish(values(b"a"))
        topic.grow(3)
        assert topic.log.offsets().end.tolist() == [1, 0, 0]
        assert topic.log.read(2, 0, 10, EVERYTHING).num_rows == 0
        assert (topic.log.first_at(2, 0), topic.log.time_of(2, 0)) == (0, None)
        place.reopen()
        assert topic.log.offsets().start.tolist() == [0, 0, 0]
        for number in range(5):
            topic.publish(values(b"%d" % number, partition=2))
        place.reopen()
        topic.grow(4)
        topic.publish(values(b"d", partition=3))
        assert [values_in(topic.log, partition) for partition in range(4)] == [
            [b"a"],
            [],
            [b"0", b"1", b"2", b"3", b"4"],
            [b"d"],
        ]
        assert [topic.log.first_at(partition, NOW_US) for partition in range(4)] == [0, 0, 0, 0]

    def test_bytes_stored_grow_with_what_is_written(self, place: Place) -> None:
        topic = Topic(place)
        sizes = [topic.log.bytes_stored()]
        for _ in range(6):
            topic.publish(values(b"v" * 300))
            sizes.append(topic.log.bytes_stored())
        assert all(after - before >= 300 for before, after in pairwise(sizes))
        place.reopen()
        assert topic.log.bytes_stored() == sizes[-1]

    def test_sealing_says_a_number_and_changes_nothing_that_is_read(self, place: Place) -> None:
        topic = Topic(place)
        for number in range(7):
            topic.publish(values(b"%d" % number))
        assert topic.log.seal() >= 0
        assert topic.log.seal() == 0
        place.reopen()
        assert values_in(topic.log) == [b"%d" % number for number in range(7)]

    def test_a_deleted_log_leaves_its_name_free(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"))
        place.store.stages.write(topic.record.id, "stage", values(b"b"), NOW_US)
        topic.delete()
        assert place.store.stages.read(topic.record.id, "stage") is None
        place.reopen()
        again = Topic(place)
        assert again.record.id > topic.record.id
        assert values_in(again.log) == []

    def test_a_log_that_is_closed_twice_is_closed(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(values(b"a"))
        topic.log.close()
        topic.log.close()
        place.reopen()
        assert values_in(topic.log) == [b"a"]


class RetentionContract:
    """What may go, goes; nothing else. Engines drop in pieces of their own size, so only bounds are exact."""

    @staticmethod
    def filled(place: Place, settings: TopicSettings, commits: int = 12) -> Topic:
        """One message per commit and second, alternating between two partitions."""
        topic = Topic(place, settings=settings)
        for number in range(commits):
            topic.publish(values(b"%d" % number, partition=number % 2), now_us=NOW_US + number * SECOND_US)
        return topic

    @staticmethod
    def check_kept(log: TopicLog, end: int) -> list[int]:
        """The start offsets, once it is checked that all above them is there and all below refused."""
        starts: list[int] = log.offsets().start.tolist()
        for partition, start in enumerate(starts):
            assert values_in(log, partition) == [b"%d" % (2 * offset + partition) for offset in range(start, end)]
            for offset in range(start):
                assert log.time_of(partition, offset) is None
                with pytest.raises(OffsetOutOfRange) as caught:
                    log.read(partition, offset, 1, EVERYTHING)
                assert (caught.value.start, caught.value.end) == (start, end)
            assert log.first_at(partition, 0) == start
        return starts

    def test_old_messages_go_and_younger_ones_stay(self, place: Place) -> None:
        settings = settings_of(retention_seconds=4)
        topic = self.filled(place, settings)
        now_us = NOW_US + 11 * SECOND_US
        place.reopen(now_us)
        dropped = topic.log.drop_outlived(settings, None, now_us)
        assert dropped > 0
        starts = self.check_kept(topic.log, 6)
        assert max(starts) <= 4
        assert starts != [0, 0]
        assert topic.log.drop_outlived(settings, None, now_us) == 0
        place.reopen(now_us)
        assert self.check_kept(topic.log, 6) == starts

    def test_everything_may_be_dropped_and_offsets_continue(self, place: Place) -> None:
        settings = settings_of(retention_seconds=1)
        topic = self.filled(place, settings)
        later_us = NOW_US + 100 * SECOND_US
        topic.log.drop_outlived(settings, None, later_us)
        assert self.check_kept(topic.log, 6) == [6, 6]
        place.reopen(later_us)
        assert self.check_kept(topic.log, 6) == [6, 6]
        receipts = topic.publish(values(b"new"), now_us=later_us)[0]
        assert receipts.offset.tolist() == [6]
        assert topic.log.drop_outlived(settings, None, later_us) == 0
        assert values_in(topic.log) == [b"new"]

    def test_the_oldest_go_while_more_than_the_bytes_stay(self, place: Place) -> None:
        topic = self.filled(place, DEFAULT_SETTINGS)
        before = topic.log.bytes_stored()
        place.reopen()
        settings = settings_of(retention_bytes=before // 2)
        assert topic.log.drop_outlived(settings, None, NOW_US) > 0
        assert before // 2 <= topic.log.bytes_stored() < before
        assert self.check_kept(topic.log, 6) != [0, 0]
        assert topic.log.drop_outlived(settings, None, NOW_US) == 0
        assert topic.log.drop_outlived(settings_of(retention_bytes=before), None, NOW_US) == 0

    def test_what_an_important_group_has_not_read_stays(self, place: Place) -> None:
        settings = settings_of(retention_seconds=1)
        topic = self.filled(place, settings)
        later_us = NOW_US + 100 * SECOND_US
        place.reopen(later_us)
        assert topic.log.drop_outlived(settings, np.array([0, 6]), later_us) == 0
        assert self.check_kept(topic.log, 6) == [0, 0]
        topic.log.drop_outlived(settings, np.array([6, 4]), later_us)
        starts = self.check_kept(topic.log, 6)
        assert starts != [0, 0]
        assert starts[1] <= 4
        topic.log.drop_outlived(settings, np.array([6, 6]), later_us)
        assert self.check_kept(topic.log, 6) == [6, 6]

    def test_without_limits_nothing_goes(self, place: Place) -> None:
        topic = self.filled(place, DEFAULT_SETTINGS)
        place.reopen()
        assert topic.log.drop_outlived(DEFAULT_SETTINGS, None, NOW_US + 10**15) == 0
        assert self.check_kept(topic.log, 6) == [0, 0]

    def test_what_was_deleted_is_gone_at_once_and_its_segments_later(self, place: Place) -> None:
        topic = self.filled(place, DEFAULT_SETTINGS)
        topic.delete_before({0: 5})
        assert self.check_kept(topic.log, 6) == [5, 0]
        assert [batch.column("offset")[0].as_py() for batch in topic.log.read_many({0: 5, 1: 0}, 10, EVERYTHING)]
        with pytest.raises(OffsetOutOfRange):
            topic.log.read_many({0: 4, 1: 0}, 10, EVERYTHING)
        place.reopen()
        assert self.check_kept(topic.log, 6) == [5, 0]
        topic.log.drop_outlived(DEFAULT_SETTINGS, None, NOW_US)
        assert self.check_kept(topic.log, 6) == [5, 0], "segments have messages of partition 1 too"
        topic.delete_before({0: 2, 1: 4})
        assert self.check_kept(topic.log, 6) == [5, 4], "a start never falls"
        # Whoever has read it: it was deleted already.
        assert topic.log.drop_outlived(DEFAULT_SETTINGS, np.array([0, 0]), NOW_US) > 0
        assert self.check_kept(topic.log, 6) == [5, 4]
        place.reopen()
        assert self.check_kept(topic.log, 6) == [5, 4]

    def test_everything_may_be_deleted_and_offsets_continue(self, place: Place) -> None:
        topic = self.filled(place, DEFAULT_SETTINGS)
        before = topic.log.bytes_stored()
        topic.delete_before({0: 6, 1: 6})
        assert self.check_kept(topic.log, 6) == [6, 6]
        assert topic.log.drop_outlived(DEFAULT_SETTINGS, None, NOW_US) > 0
        assert topic.log.bytes_stored() < before
        topic.grow(3)
        place.reopen()
        assert topic.log.offsets().by_partition() == {0: (6, 6), 1: (6, 6), 2: (0, 0)}
        assert topic.publish(values(b"12"))[0].offset.tolist() == [6]
        assert topic.log.drop_outlived(DEFAULT_SETTINGS, None, NOW_US) == 0
        assert values_in(topic.log) == [b"12"]
        assert topic.log.time_of(0, 6) is not None

    def test_what_an_important_group_has_not_read_cannot_be_deleted(self, place: Place) -> None:
        topic = self.filled(place, DEFAULT_SETTINGS)
        catalog = place.store.catalog
        put_group(catalog, topic.record.id, Group("kept", important=True), {0: 6, 1: 2})
        put_group(catalog, topic.record.id, Group("other"), {0: 1})
        with pytest.raises(MessagesHeld) as caught:
            topic.delete_before({0: 6, 1: 3})
        assert (caught.value.group, caught.value.partition, caught.value.committed) == ("kept", 1, 2)
        assert self.check_kept(topic.log, 6) == [0, 0], "all or nothing"
        topic.delete_before({0: 6, 1: 2})
        assert self.check_kept(topic.log, 6) == [6, 2]

    def test_messages_of_a_deleted_topic_cannot_be_deleted(self, place: Place) -> None:
        topic = Topic(place)
        topic.delete()
        with pytest.raises(TopicDeleted):
            place.store.catalog.delete_before(topic.record, {0: 0})

    def test_partitions_added_later_are_dropped_with_the_rest(self, place: Place) -> None:
        settings = settings_of(retention_seconds=1)
        topic = self.filled(place, settings, commits=4)
        topic.grow(3)
        topic.publish(values(b"late", partition=2), now_us=NOW_US + 4 * SECOND_US)
        later_us = NOW_US + 100 * SECOND_US
        place.reopen(later_us)
        # What is held may have been looked up before the partition was added.
        for held in ([2, 2, 0], [2, 2]):
            topic.log.drop_outlived(settings, np.array(held), later_us)
            assert values_in(topic.log, 2) == [b"late"]
        topic.log.drop_outlived(settings, np.array([2, 2, 1]), later_us)
        assert topic.log.offsets().start.tolist() == [2, 2, 1]

    def test_a_source_that_was_reset_starts_over_after_reopening_too(self, place: Place) -> None:
        topic = Topic(place)
        rows = [{"producer_id": name, "seqno": 9} for name in ("p", "q")]
        topic.publish(batch_of(rows), keys=(CommitKey("w", 1),))
        topic.log.commit(lambda state, fences: [plan_reset(state, [("p", "")], NOW_US)])
        before = state_of(topic.log)
        place.reopen()
        assert state_of(topic.log) == before
        again = batch_of([{"producer_id": name, "seqno": seqno} for name in ("p", "q") for seqno in (1, 9)])
        assert topic.publish(again)[0].outcome.tolist() == [0, 0, 1, 1]
        place.reopen()
        assert topic.log.state.sources.last_seqno(("p", "")) == 9
        assert topic.log.state.is_repeated(CommitKey("w", 1))

    def test_another_message_with_the_last_seqno_is_a_conflict_after_reopening_too(self, place: Place) -> None:
        topic = Topic(place)
        topic.publish(batch_of([{"value": b"a", "producer_id": "p", "seqno": 9}]))
        again = batch_of([{"value": value, "producer_id": "p", "seqno": 9} for value in (b"a", b"b")])
        assert topic.publish(again)[0].outcome.tolist() == [1, 4]
        place.reopen()
        assert topic.publish(again)[0].outcome.tolist() == [1, 4]

    def test_sources_are_known_after_their_messages_went(self, place: Place) -> None:
        settings = settings_of(retention_seconds=1)
        topic = Topic(place, settings=settings)
        for seqno in range(5):
            topic.publish(batch_of([{"producer_id": "p", "seqno": seqno}]), keys=(CommitKey("w", seqno),))
        later_us = NOW_US + 100 * SECOND_US
        topic.log.drop_outlived(settings, None, later_us)
        before = state_of(topic.log)
        place.reopen(later_us)
        assert state_of(topic.log) == before
        receipts = topic.publish(batch_of([{"producer_id": "p", "seqno": 4}, {"producer_id": "p", "seqno": 5}]))[0]
        assert receipts.outcome.tolist() == [1, 0]
        assert topic.log.state.writers == {"w": 4}

    def test_readers_meet_retention_without_surprise(self, place: Place) -> None:
        settings = settings_of(retention_bytes=1)
        topic = Topic(place, settings=settings)
        log = topic.log
        stop = threading.Event()

        def follow() -> int:
            position, found = 0, 0
            # However late its thread begins, it finds what is kept.
            while not found or not stop.is_set():
                try:
                    batch = log.read(0, position, 3, EVERYTHING)
                except OffsetOutOfRange as error:
                    position = error.start
                    continue
                assert batch["value"].to_pylist() == [b"%d" % offset for offset in batch["offset"].to_pylist()]
                assert log.first_at(0, NOW_US) <= int(log.offsets().end[0])
                log.time_of(0, position)
                position, found = position + batch.num_rows, found + batch.num_rows
                time.sleep(0.0001)
            return found

        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(follow) for _ in range(2)]
            try:
                for number in range(120):
                    publish(log, values(b"%d" % number), now_us=NOW_US + number)
                    log.drop_outlived(settings, None, NOW_US)
                    assert log.bytes_stored() > 0
            finally:
                stop.set()
            assert all(reader.result(timeout=30) > 0 for reader in readers)
        place.reopen()
        assert topic.log.offsets().end[0] == 120


class StagesContract:
    """Rows that wait to be published together."""

    def test_rows_come_back_in_the_order_written(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        pieces = [batch_of([FULL_ROW, {"partition": 0}]), values(b"a", b"b", partition=None), values(partition=None)]
        totals = [place.store.stages.write(topic_id, "s", piece, NOW_US) for piece in pieces]
        assert totals == [2, 4, 4]
        place.reopen()
        found = place.store.stages.read(topic_id, "s")
        assert found is not None
        assert [piece.rows.to_pylist() for piece in found] == [piece.to_pylist() for piece in pieces]
        assert place.store.stages.write(topic_id, "s", pieces[1], NOW_US) == 6
        place.reopen()
        found = place.store.stages.read(topic_id, "s")
        assert found is not None
        assert [piece.rows.num_rows for piece in found] == [2, 2, 0, 2]
        assert [piece.rows.num_rows for piece in found] == [2, 2, 0, 2], "it can be read again"
        assert (found.rows, found.has_sources) == (6, True)
        assert found.bytes >= sum(piece.nbytes for piece in pieces)

    @pytest.mark.parametrize("key_hash", ["fnv1a", "murmur2"])
    def test_places_come_back_where_they_are_kept(self, place: Place, key_hash: str) -> None:
        topic_id = Topic(place).record.id
        placed = place_ahead(values(b"a", b"b", b"c", partition=None), settings_of(key_hash=key_hash), 2, 1)
        assert placed is not None
        rows, places = placed
        place.store.stages.write(topic_id, "s", values(b"0"), NOW_US)
        assert place.store.stages.write(topic_id, "s", rows, NOW_US, places) == 4
        place.reopen()
        stage = place.store.stages.read(topic_id, "s")
        assert stage is not None
        first, second = stage
        assert (first.places, second.rows.to_pylist()) == (None, rows.to_pylist())
        if not place.store.stages.keeps_places:
            assert second.places is None
            return
        assert second.places is not None
        found, expected = second.places.directory, places.directory
        assert (second.places.partitions, second.places.key_hash) == (2, key_hash)
        assert (found.partition.tolist(), found.rows.tolist()) == (expected.partition.tolist(), expected.rows.tolist())

    def test_a_stage_that_is_not_there_is_none(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        assert place.store.stages.read(topic_id, "s") is None
        assert not place.store.stages.drop(topic_id, "s")
        place.store.stages.write(topic_id, "s", values(b"a"), NOW_US)
        place.reopen()
        assert place.store.stages.read(topic_id + 1, "s") is None
        assert place.store.stages.read(topic_id, "S") is None

    def test_a_dropped_stage_is_deleted_and_may_start_over(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        for stage in ("s", "t"):
            place.store.stages.write(topic_id, stage, values(b"long" * 100), NOW_US)
        assert place.store.stages.drop(topic_id, "s")
        place.reopen()
        assert place.store.stages.read(topic_id, "s") is None
        assert not place.store.stages.drop(topic_id, "s")
        assert place.store.stages.write(topic_id, "s", values(b"a"), NOW_US) == 1
        place.reopen()
        found = [place.store.stages.read(topic_id, stage) for stage in ("s", "t")]
        assert [len(piece.rows["value"][0].as_py()) for stage in found if stage for piece in stage] == [1, 400]
        assert [stage.has_sources for stage in found if stage] == [False, False]

    def test_a_stage_that_is_dropped_while_it_is_read_is_read_to_its_end(self, place: Place) -> None:
        topic_id, stages = Topic(place).record.id, place.store.stages
        stages.write(topic_id, "s", values(b"a"), NOW_US)
        readers = [stage for stage in (stages.read(topic_id, "s"), stages.read(topic_id, "s")) if stage is not None]
        assert stages.expire(NOW_US) == 1
        assert not stages.drop(topic_id, "s")
        assert stages.read(topic_id, "s") is None
        for reader in readers:
            assert [piece.rows["value"].to_pylist() for piece in reader] == [[b"a"]]
            reader.release()
        assert stages.write(topic_id, "s", values(b"b"), NOW_US) == 1
        place.reopen()
        found = place.store.stages.read(topic_id, "s")
        assert [piece.rows["value"].to_pylist() for piece in found or ()] == [[b"b"]]

    @pytest.mark.parametrize("stage", [*NAMES, "x" * 2048, "a/b\\c", "1-2"])
    def test_any_name_keeps_its_rows(self, place: Place, stage: str) -> None:
        topic_id = Topic(place).record.id
        place.store.stages.write(topic_id, stage, values(b"a"), NOW_US)
        place.reopen()
        found = place.store.stages.read(topic_id, stage)
        assert found is not None
        assert [piece.rows["value"].to_pylist() for piece in found] == [[b"a"]]
        assert place.store.stages.drop(topic_id, stage)

    def test_stages_of_topics_are_apart(self, place: Place) -> None:
        first, second = Topic(place, "a").record.id, Topic(place, "b").record.id
        place.store.stages.write(first, "s", values(b"1"), NOW_US)
        place.store.stages.write(first, "t", values(b"2"), NOW_US)
        place.store.stages.write(second, "s", values(b"3"), NOW_US)
        place.reopen()
        place.store.stages.drop_topic(first)
        place.reopen()
        assert place.store.stages.read(first, "s") is None
        assert place.store.stages.read(first, "t") is None
        found = place.store.stages.read(second, "s")
        assert found is not None
        assert [piece.rows["value"].to_pylist() for piece in found] == [[b"3"]]

    def test_stages_that_nobody_writes_to_expire(self, place: Place) -> None:
        topic_id = Topic(place).record.id
        for stage, written_us in (("old", 10), ("renewed", 10), ("young", 30)):
            place.store.stages.write(topic_id, stage, values(b"a"), written_us)
        place.store.stages.write(topic_id, "renewed", values(b"b"), 40)
        place.reopen()
        assert place.store.stages.expire(9) == 0
        assert place.store.stages.expire(20) == 1
        place.reopen()
        assert place.store.stages.read(topic_id, "old") is None
        assert place.store.stages.expire(30) == 1
        assert place.store.stages.read(topic_id, "young") is None
        assert place.store.stages.read(topic_id, "renewed") is not None

    def test_many_threads_may_write_at_once(self, place: Place) -> None:
        topic_id = Topic(place).record.id

        def write(number: int) -> None:
            place.store.stages.write(topic_id, f"s{number % 3}", values(b"%d" % number), NOW_US)

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(write, range(60)))
        place.reopen()
        found: list[int] = []
        for stage in ("s0", "s1", "s2"):
            pieces = place.store.stages.read(topic_id, stage)
            assert pieces is not None
            found += [int(piece.rows["value"][0].as_py()) for piece in pieces]
        assert sorted(found) == list(range(60))


class EngineContract(CatalogContract, LogContract, RetentionContract, StagesContract):
    """All of it."""

"""Columns of values in files of the archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.core.values.schema import FOOTER_KEY
from tests.core.values.test_schema import of
from tests.storage.archive.builders import ArchivedTopic, doctor
from tests.storage.builders import NOW_US, Place, batch_of

SCHEMA = of(id={"type": "integer"}, name={"type": "string"}, inner=of(a={"type": "number"}), many={"type": "array"})


def with_schema(topic: ArchivedTopic, schema: dict[str, Any]) -> None:
    topic.record = replace(topic.record, settings=topic.record.settings.change(value_schema=schema))
    topic.place.store.catalog.change_topic(topic.record, lambda _: topic.record)


def publish(topic: ArchivedTopic, *values: bytes | None) -> None:
    topic.publish(batch_of([{"value": value, "partition": 0} for value in values]), now_us=NOW_US)


def typed(topic: ArchivedTopic) -> list[tuple[Any, ...]]:
    return [(row["value"], row.get("id"), row.get("name"), row.get("value_error")) for row in topic.table()]


def test_files_have_the_columns_of_the_schema_of_their_time(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", partitions=1)
    publish(topic, b'{"id": 1, "name": "before"}')
    topic.archive()
    with_schema(topic, SCHEMA)
    publish(topic, b'{"id": 2, "name": "after"}', b"{", b'{"id": 3}')
    topic.archive()
    assert typed(topic) == [
        (b'{"id": 1, "name": "before"}', None, None, None),
        (b'{"id": 2, "name": "after"}', 2, "after", None),
        (b"{", None, None, "the value is not JSON: input data was truncated"),
        (b'{"id": 3}', 3, None, None),
    ]
    assert [row["value"] for row in topic.rows()] == [row[0] for row in typed(topic)]
    assert doctor(topic) == []


def test_a_merged_file_has_the_columns_of_the_newest_schema(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1)
    for number in range(4):
        if number == 2:
            with_schema(topic, SCHEMA)
        publish(topic, b'{"id": %d}' % number, b"x")
        topic.archive()
    assert topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US) is not None
    assert [row[1] for row in typed(topic)] == [0, None, 1, None, 2, None, 3, None]
    assert sum(row[3] is not None for row in typed(topic)) == 4
    topic.drop_local()
    assert [row["value"] for row in topic.rows()] == [row[0] for row in typed(topic)]


def test_statistics_of_columns(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1, value_schema=SCHEMA)
    publish(topic, b'{"id": 5, "name": "b", "inner": {"a": 1}, "many": [1]}', b'{"id": 7, "name": "a"}', b"x")
    file = topic.archive()[0]
    footer = pq.read_metadata(topic.files.open(file.path))
    assert footer.metadata[FOOTER_KEY].decode() == topic.record.settings.value_schema
    group = footer.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    found = {path: (each.statistics.min, each.statistics.max) for path, each in columns.items() if each.statistics}
    assert (found["id"], found["name"], found["inner.a"]) == ((5, 7), ("a", "b"), (1.0, 1.0))
    assert columns["value_error"].statistics.null_count == 2
    assert "many.list.element" not in found and "value" not in found


def test_row_groups_are_smaller_where_columns_are_large(
    memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.core.values.columns.VALUE_SLICE_ROWS", 2)
    monkeypatch.setattr("headrace.storage.archive.parquet.ARCHIVE_GROUP_BYTES", 500)
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1, value_schema=of(a={}, many={"type": "array"}))
    publish(topic, *[b'{"many": [%s1]}' % (b"1," * 30) for _ in range(5)])
    file = topic.archive()[0]
    footer = pq.read_metadata(topic.files.open(file.path))
    assert [footer.row_group(place).num_rows for place in range(footer.num_row_groups)] == [4, 1]
    topic.drop_local()
    assert len(topic.rows()) == 5 == len(topic.table())

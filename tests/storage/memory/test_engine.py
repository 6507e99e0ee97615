"""The memory engine beyond the contract: it keeps nothing, and shares what it is given."""

from __future__ import annotations

import pytest

from headrace.core.errors import Closed
from headrace.storage.memory.engine import MemoryStore
from tests.storage.builders import NOW_US, MemoryPlace, Topic, values, values_in


def test_two_stores_know_nothing_of_each_other() -> None:
    first, second = MemoryStore(), MemoryStore()
    topic = first.catalog.add_topic("a", "a", 1, Topic(MemoryPlace()).record.settings, 0, lambda made: None)
    assert [record.id for record in first.catalog.topics()] == [topic.id]
    assert second.catalog.topics() == []
    first.close()
    with pytest.raises(Closed):
        first.catalog.topics()
    second.close()


def test_a_log_that_is_opened_is_empty() -> None:
    place = MemoryPlace()
    topic = Topic(place)
    topic.publish(values(b"a"))
    assert values_in(topic.log) == [b"a"]
    place.opened(topic.record, NOW_US)
    assert values_in(topic.log) == []
    place.close()


def test_rows_of_a_stage_are_not_copied() -> None:
    store = MemoryStore()
    rows = values(b"a")
    store.stages.write(1, "s", rows, NOW_US)
    found = store.stages.read(1, "s")
    assert found is not None
    assert [piece.rows is rows for piece in found] == [True]
    store.close()

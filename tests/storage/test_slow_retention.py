"""Retention of topics that are written slowly, with the segments that stores have by default, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.core.errors import OffsetOutOfRange
from headrace.core.limits import RETENTION_CHECK_SECONDS
from headrace.core.topics.retention import lateness_seconds
from tests.postgres_server import PostgresServer
from tests.storage.builders import EVERYTHING, NOW_US, DiskPlace, MemoryPlace, Place, PostgresPlace, Topic, values
from tests.storage.contract import SECOND_US, settings_of

CHECK_US = int(RETENTION_CHECK_SECONDS) * SECOND_US


@pytest.fixture(params=["memory", "disk", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found: Place
    if request.param == "memory":
        found = MemoryPlace()
    elif request.param == "disk":
        found = DiskPlace(tmp_path / "store", options="durability=os")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        found = PostgresPlace(server.fresh_url(""))
    yield found
    found.close()


@pytest.mark.parametrize("retention_seconds", [2, 600])
def test_a_message_a_second_expires_in_time(place: Place, retention_seconds: int) -> None:
    settings = settings_of(retention_seconds=retention_seconds)
    topic = Topic(place, partitions=1, settings=settings)
    step_us = max(1, retention_seconds // 100) * SECOND_US
    late_us = int(lateness_seconds(retention_seconds) + retention_seconds) * SECOND_US
    times: list[int] = []
    looked_us = NOW_US
    for number in range(250):
        now_us = NOW_US + number * step_us
        topic.publish(values(b"%d" % number), now_us=now_us)
        times.append(now_us)
        if now_us - looked_us >= CHECK_US:
            looked_us = now_us
            topic.log.drop_outlived(settings, None, now_us)
            start = int(topic.log.offsets().start[0])
            assert all(time_us >= now_us - late_us for time_us in times[start:]), "it can be read, and has expired"
            assert all(time_us < now_us - retention_seconds * SECOND_US for time_us in times[:start])
    start = int(topic.log.offsets().start[0])
    assert start > 0
    with pytest.raises(OffsetOutOfRange):
        topic.log.read(0, start - 1, 1, EVERYTHING)


def test_few_bytes_are_kept_where_few_are_asked_for(place: Place) -> None:
    settings = settings_of(retention_bytes=1 << 20)
    topic = Topic(place, partitions=1, settings=settings)
    for number in range(100):
        topic.publish(values(bytes([number]) * (100 << 10)), now_us=NOW_US + number)
    topic.log.drop_outlived(settings, None, NOW_US + 1000)
    assert 1 << 20 <= topic.log.bytes_stored() < (1 << 20) + (1 << 19)


def test_what_an_important_group_holds_makes_no_heap_of_segments(place: Place) -> None:
    settings = settings_of(retention_seconds=2)
    topic = Topic(place, partitions=1, settings=settings)
    for number in range(100):
        now_us = NOW_US + number * 60 * SECOND_US
        topic.publish(values(b"%d" % number), now_us=now_us)
        assert topic.log.drop_outlived(settings, np.array([0]), now_us) == 0
    if isinstance(place, DiskPlace):
        assert len(list(place.directory.glob("topics/*/*.log"))) < 5
    topic.log.drop_outlived(settings, np.array([100]), now_us + 60 * SECOND_US)
    assert topic.log.offsets().start.tolist() == [100]

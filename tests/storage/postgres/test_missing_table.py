"""Tables that someone dropped by hand: reads say so, and do not look for them for ever."""

from __future__ import annotations

import pytest

from headrace.core.errors import TableMissing
from headrace.core.limits import LOOKS_MAX
from headrace.storage.postgres.log.log import LogView
from tests.storage.builders import EVERYTHING, NOW_US, publish, values
from tests.storage.postgres.sites import Site, create, log_of

SEGMENTS = "segment_commits=2"


@pytest.mark.parametrize("is_known", [True, False])
def test_read_of_a_table_that_is_missing_ends(site: Site, is_known: bool) -> None:
    store = site.open(SEGMENTS)
    topic = create(store)
    for number in range(6):
        publish(log_of(store, topic), values(b"%d" % number))
    log = log_of(store if is_known else site.open(SEGMENTS), topic)
    if is_known:
        assert log.read(0, 0, EVERYTHING, EVERYTHING).num_rows == 6
    site.do(f"DROP TABLE topic_{topic.id}_1")
    for _ in range(2):
        with pytest.raises(TableMissing, match=f"topic_{topic.id}_0 to _2") as caught:
            log.read(0, 2, EVERYTHING, EVERYTHING)
        assert not caught.value.retry
    with pytest.raises(TableMissing):
        log.first_at(0, NOW_US + 2)
    assert log.read(0, 0, 2, 1 << 20).num_rows == 2, "what is there can be read"
    assert log.read(0, 4, EVERYTHING, EVERYTHING).num_rows == 2
    assert log.time_of(0, 2) is None


def test_read_ends_if_nobody_knows_which_tables_there_are(site: Site) -> None:
    store = site.open(SEGMENTS)
    topic = create(store)
    publish(log_of(store, topic), values(b"a"))
    site.do(f"DELETE FROM topic_segments WHERE topicid = {topic.id}")
    with pytest.raises(TableMissing, match="topic_segments"):
        log_of(site.open(SEGMENTS), topic).offsets()


def test_read_that_retention_overtakes_again_and_again_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store = site.open(SEGMENTS)
    topic = create(store)
    publish(log_of(store, topic), values(b"a"))
    log = log_of(store, topic)
    site.do(f"DROP TABLE topic_{topic.id}_0")
    looks: list[LogView] = []

    def look_after(view: LogView) -> LogView:
        looks.append(view)
        return view

    monkeypatch.setattr(log, "_look_after", look_after)
    with pytest.raises(TableMissing):
        log.read(0, 0, EVERYTHING, EVERYTHING)
    assert len(looks) == LOOKS_MAX

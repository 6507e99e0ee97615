"""A short run of members that join and leave at random, as `make campaign` runs it for longer."""

from __future__ import annotations

import pytest

from tests.campaign.members import play, servers

# What happens in a few seconds depends on the machine.
pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("store", ["disk", "postgres"])
def test_members_that_come_and_go_raise_nothing_and_read_everything_once(store: str) -> None:
    with servers(store) as urls:
        record = play(urls, seconds=5.0, seed=3, members_range=(3, 6), partitions=6, rate=500)
    assert record.failures == []
    assert record.joins > 3

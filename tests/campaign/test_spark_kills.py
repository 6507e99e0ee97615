"""Two kills of Spark's driver in the commit window, as `make campaign` does thirty on each store.

The seed is one with which each query is killed once before it publishes a batch, and once after.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.spark_kills import play, server_on


@pytest.mark.timeout(1_800.0)
def test_what_a_killed_driver_left_is_published_once(tmp_path: Path) -> None:
    with server_on("disk", tmp_path) as server:
        outcome = play(server.url, tmp_path, kills=2, seed=4912)
    assert outcome.is_good, str(outcome)
    assert outcome.kills == 2 and outcome.messages == 500
    assert outcome.moments == {"staged": 4, "published": 4}

"""A server whose clock is an hour wrong, beside one whose clock is right: they agree on what is a duplicate."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from tests.campaign.servers import CampaignServer
from tests.postgres_server import PostgresServer

HOUR_SECONDS = 3600


@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -HOUR_SECONDS])
def test_a_payload_is_written_once_within_its_window(seconds: int, tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.fresh_url()
    right, wrong = (CampaignServer(name, url, tmp_path) for name in ("right", "wrong"))
    wrong.set_clock(seconds)
    try:
        for server in (right, wrong):
            server.start()
        with headrace.connect(right.url) as at_right, headrace.connect(wrong.url) as at_wrong:
            at_right.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
            for value, order in ((b"x", (at_right, at_wrong, at_right)), (b"y", (at_wrong, at_right, at_wrong))):
                found = []
                for client in order:
                    with client.producer("orders") as producer:
                        found.append(producer.send(value).result().status)
                assert found == ["written", "duplicate", "duplicate"]
    finally:
        for server in (right, wrong):
            server.close()

"""Servers that are killed under YDB's own SDK: nothing is lost, nothing is doubled, and producers keep their order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.protocols.ydb.kills import play
from tests.protocols.ydb.site import YdbSite

MANY = pytest.param(20, id="many", marks=pytest.mark.campaign)


@pytest.mark.parametrize("kills", [2, MANY])
def test_the_server_on_disk_is_killed(tmp_path: Path, kills: int) -> None:
    with closing(YdbSite(f"file:{tmp_path}/store")) as site:
        play([site], kills)


@pytest.mark.parametrize("kills", [1, MANY])
def test_one_of_two_servers_is_killed(postgres: PostgresServer, kills: int) -> None:
    store = postgres.fresh_url()
    with closing(YdbSite(store)) as first, closing(YdbSite(store)) as second:
        play([first, second], kills)

"""Every code block of README.md and docs/ runs, in the order in which a reader meets it.

Pages that start Spark are run by tests/spark/test_pages.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Server
from tests.docs.counts import BLOCKS_LEFT, BLOCKS_RUN, Record, counting, summary
from tests.docs.pages import LANGUAGES, SPARK_PAGES, Block, Scratch, blocks, pages
from tests.postgres_server import PostgresServer

# Its drawings have no language yet.
ON_POSTGRES = "docs/postgres.md"
# It has servers of its own: tests/docs/test_three_servers.py.
THREE_SERVERS = "docs/three-servers.md"
# Pages that need a port of another protocol, by its option.
ON_PROTOCOLS = {"docs/kafka.md": "--kafka", "docs/from/ydb-topics.md": "--ydb", "docs/from/cursus.md": "--cursus"}
# Roles that the page takes for given; roles belong to all databases of a server.
ROLES = ("app", "reports")
_CREATE_ROLE = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ROLE_NAME') THEN CREATE ROLE ROLE_NAME; END IF;
END $$
"""
RUN = {"bash", "python", "output", "toml", "sql"}
HERE = [
    page
    for page in pages()
    if page not in SPARK_PAGES | {ON_POSTGRES, THREE_SERVERS} | ON_PROTOCOLS.keys()
    and any(block.language in RUN for block in blocks(page))
]


def test_every_fence_says_what_it_is() -> None:
    unknown = [
        f"{block}: {block.language!r}" for page in pages() for block in blocks(page) if block.language not in LANGUAGES
    ]
    assert unknown == []


def test_pages_that_start_spark_are_known() -> None:
    starting = {
        page
        for page in pages()
        for block in blocks(page)
        if block.language in RUN and ("spark" in block.text or "headrace pipeline" in block.text)
    }
    assert starting == SPARK_PAGES


@pytest.mark.parametrize("page", HERE)
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, record_property: Record) -> None:
    with Server(tmp_path / "headrace-data") as server:
        Scratch(tmp_path, server).run_page(page, record_property)


@pytest.mark.parametrize("page", ON_PROTOCOLS)
def test_blocks_of_a_protocols_page_run_in_order(page: str, tmp_path: Path, record_property: Record) -> None:
    with Server(tmp_path / "headrace-data", ON_PROTOCOLS[page], "127.0.0.1:0") as server:
        Scratch(tmp_path, server).run_page(page, record_property)


def test_blocks_of_the_postgres_page_run_in_order(
    postgres: PostgresServer, tmp_path: Path, record_property: Record
) -> None:
    name = postgres.fresh_database()
    with Server(postgres.url(name)) as server, postgres.connect(name) as connection:
        for role in ROLES:
            connection.execute(_CREATE_ROLE.replace("ROLE_NAME", role).encode())
        Scratch(tmp_path, server, connection).run_page(ON_POSTGRES, record_property)


def test_blocks_that_fail_are_counted_and_so_are_those_after_them() -> None:
    recorded: dict[str, object] = {}
    with pytest.raises(ZeroDivisionError), counting(["bash", "bash", "python"], recorded.__setitem__) as succeeded:
        succeeded["bash"] += 1
        raise ZeroDivisionError
    assert recorded == {BLOCKS_RUN: {"bash": 1}, BLOCKS_LEFT: 2}
    pages = [({"bash": 1}, 2), ({"bash": 2, "output": 1}, 0)]
    assert summary(pages) == "4 blocks of 2 pages: 3 bash, 1 output; 1 failed, 1 not reached"


@pytest.mark.parametrize("flags", ["-s", "-s -o /dev/null", "-s -w ' '"])
def test_an_http_error_fails_a_block_that_is_not_there_to_show_one(flags: str, tmp_path: Path) -> None:
    url = "http://127.0.0.1:7070/v1/topics"
    with Server(tmp_path / "headrace-data") as server:
        scratch = Scratch(tmp_path, server)
        failing = f"curl {flags} {url}/nothing"
        for command in (failing, f"{failing} | cat", f"x=$({failing})"):
            with pytest.raises(AssertionError, match="exit code 22"):
                scratch.run(Block("page", 1, "bash", command))
            scratch.run(Block("page", 1, "bash", command, shows_error=True))
        with pytest.raises(AssertionError, match="exit code 0"):
            scratch.run(Block("page", 1, "bash", f"curl {flags} {url}", shows_error=True))

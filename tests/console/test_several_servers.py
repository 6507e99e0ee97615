"""A console for two servers that share a database, one of which is killed under an open page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import headrace
from tests.console.conftest import Site, Visit
from tests.console.processes import ConsoleProcess
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def other() -> list[ServerProcess]:
    """The second server, filled by `site`."""
    return []


@pytest.fixture(scope="module")
def site(postgres: PostgresServer, other: list[ServerProcess]) -> Iterator[Site]:
    """Two servers on one database, and a console that knows both."""
    store = postgres.fresh_url()
    first, second = ServerProcess(store), ServerProcess(store)
    other.append(second)
    urls = f"{first.url},{second.url}"
    console = ConsoleProcess(urls)
    with headrace.connect(urls) as client:
        yield Site(first, console, client)
    console.close()
    first.close()
    second.close()


def test_pages_go_on_when_one_of_two_servers_is_killed(visit: Visit, site: Site, other: list[ServerProcess]) -> None:
    site.client.create_topic("orders")
    with headrace.connect(site.server.url) as client, client.producer("orders") as producer:
        producer.send(b"before").result()
    site.client.register_group("orders", "billing")
    for server in (site.server, other[0]):
        with headrace.connect(server.url) as client:
            client.commit_offsets("orders", "billing", {0: 1})
    overview, topic, group = visit("/"), visit("/topic?name=orders"), visit("/groups")
    expect(topic.get_by_text("before")).to_be_visible()
    expect(overview.locator(".hr-card", has_text="Stored")).to_contain_text("1 message")
    committed = group.locator("tbody tr", has_text="billing").locator("time")
    expect(committed).to_be_visible()
    last_commit = committed.get_attribute("datetime")
    servers = visit("/server")
    expect(servers.locator(".hr-card", has_text="Servers")).to_contain_text("2")
    expect(servers.get_by_text("It cannot be checked from here")).to_be_hidden()
    servers.get_by_label("Filter settings").fill("http")
    for each in (other[0], site.server):
        servers.get_by_label("Server", exact=True).click()
        servers.get_by_role("option", name=f"http://127.0.0.1:{each.port}").click()
        expect(servers.locator("tbody tr", has_text=f"127.0.0.1:{each.port}").last).to_contain_text("--http")
    other[0].kill()
    expect(overview.get_by_role("status")).to_contain_text(f"No answer from http://127.0.0.1:{other[0].port}")
    expect(overview.locator(".hr-finding", has_text=f"127.0.0.1:{other[0].port}")).to_contain_text("did not answer")
    with site.client.producer("orders") as producer:
        producer.send(b"after").result()
    expect(topic.get_by_text("after")).to_be_visible()
    expect(overview.locator(".hr-card", has_text="Stored")).to_contain_text("2 messages")
    assert committed.get_attribute("datetime") == last_commit
    servers.get_by_role("button", name="Check now").click()
    expect(servers.get_by_text("It cannot be checked from here")).to_contain_text("pg_amcheck")
    other[0].start()
    expect(overview.get_by_role("status")).to_be_hidden()

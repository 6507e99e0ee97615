"""TLS on both sides of a console: to the server, and to the browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from playwright.sync_api import expect

import headrace
from tests.console.conftest import Site, Visit
from tests.console.processes import ConsoleProcess
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server and a console, both with TLS."""
    directory: Path = tmp_path_factory.mktemp("tls")
    authority, certificate = directory / "ca.pem", directory / "server.pem"
    made = trustme.CA()
    made.cert_pem.write_to_path(str(authority))
    made.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    files = ("--tls-certificate", str(certificate), "--tls-key", str(certificate))
    server = ServerProcess(f"file:{directory}/store", *files)
    url = f"headrace+tls://127.0.0.1:{server.flight_port}"
    console = ConsoleProcess(url, "--ca", str(authority), *files)
    with headrace.connect(url, root_certificates=authority) as client:
        client.create_topic("orders")
        with client.producer("orders") as producer:
            producer.send(b'{"paid": true}').result()
        yield Site(server, console, client)
    console.close()
    server.close()


def test_pages_and_charts_over_tls(visit: Visit, site: Site) -> None:
    assert site.console.url.startswith("https://")
    page = visit("/", ignore_https_errors=True)
    expect(page.locator(".hr-card", has_text="Stored")).to_contain_text("1 message")
    (cookie,) = (each for each in page.context.cookies() if each["name"].startswith("headrace_console"))
    assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    topic = visit("/topic?name=orders")
    expect(topic.locator("tbody tr")).to_contain_text("paid")
    servers = visit("/server")
    expect(servers.locator("tbody tr").first).to_contain_text(f"https://127.0.0.1:{site.server.port}")

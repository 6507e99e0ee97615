"""TLS on both sides of a console: to the server, and to the browser."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import trustme
from playwright.sync_api import expect

import headrace
from tests.console.conftest import Site, Visit
from tests.console.processes import ConsoleProcess
from tests.server_process import ServerProcess


class Certificates(NamedTuple):
    """The certificate of an authority, and the arguments that name one it signed."""

    authority: Path
    arguments: tuple[str, ...]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    authority, certificate = directory / "ca.pem", directory / "server.pem"
    made = trustme.CA()
    made.cert_pem.write_to_path(str(authority))
    made.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    return Certificates(authority, ("--tls-certificate", str(certificate), "--tls-key", str(certificate)))


@pytest.fixture(scope="module")
def site(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server and a console, both with TLS."""
    authority, arguments = certificates
    server = ServerProcess(f"file:{tmp_path_factory.mktemp('tls')}/store", *arguments)
    url = f"headrace+tls://127.0.0.1:{server.flight_port}"
    console = ConsoleProcess(url, "--ca", str(authority), *arguments)
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


def test_a_page_that_is_just_closing_does_not_fail_the_stop(site: Site, certificates: Certificates) -> None:
    url = f"headrace+tls://127.0.0.1:{site.server.flight_port}"
    console = ConsoleProcess(url, "--ca", str(certificates.authority), *certificates.arguments)
    host, port = console.url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=str(certificates.authority))
    with httpx.Client(verify=context, timeout=60.0) as browser:
        browser.get(console.url, follow_redirects=True)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as page:
        page.sendall(
            f"GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Origin: {console.url}\r\nCookie: {cookies}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        assert b"101 Switching Protocols" in page.recv(4096)
        # A close frame whose answer is never read: the connection is still closing when the console stops.
        page.sendall(b"\x88\x82\x00\x00\x00\x00\x03\xe8")
        console.close()

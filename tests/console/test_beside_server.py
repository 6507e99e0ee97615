"""A console that a server starts: it is found from the server's front page, and ends with the server."""

from __future__ import annotations

from pathlib import Path

import httpx

import headrace
from tests.cli import processes
from tests.cli.processes import eventually
from tests.server_process import ServerProcess


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/sign-in", timeout=60.0, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_the_front_page_leads_to_the_console_which_ends_with_its_server(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path}/store", "--console", "--set", "console_http=127.0.0.1:0")
    try:
        for end in (server.stop, server.kill):
            answer = httpx.get(f"http://127.0.0.1:{server.port}/", timeout=60.0, trust_env=False)
            assert answer.status_code == 307
            console = answer.headers["location"]
            assert _answers(console)
            end()
            eventually(lambda url=console: not _answers(url))  # type: ignore[misc]
            server.start()
    finally:
        server.close()


def test_its_console_has_figures_for_who_may_read_one_topic(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path}/store", "--console", "--set", "console_http=127.0.0.1:0")
    try:
        with headrace.connect(server.url) as client:
            client.create_topic("orders", partitions=3)
            admin = client.create_token("admin", [("*", ["publish", "read", "manage"])]).text
        with headrace.connect(server.url, admin) as client:
            reader = client.create_token("rita", [("orders", ["read"])]).text
            listed = [each.name for each in client.list_tokens()]
        console = httpx.get(f"http://127.0.0.1:{server.port}/", timeout=60.0, trust_env=False).headers["location"]
        with httpx.Client(
            base_url=console, timeout=60.0, trust_env=False, headers={"Origin": console.strip("/")}
        ) as web:
            assert web.post("/sign-in", data={"token": reader}).status_code == 303
            # A sample has the partitions of the topic; without one the page says what is missing.
            eventually(lambda: "3 partitions" in web.get("/").text)
            assert "No new samples" not in web.get("/").text
        assert listed == ["admin", "rita"], "the token of the console is not in the store"
    finally:
        server.close()


def test_a_console_needs_flight(tmp_path: Path) -> None:
    refused = processes.headrace("serve", "--store", f"file:{tmp_path}/store", "--console", "--flight", "off").refused(
        2
    )
    assert "leave out --flight off, or --console" in refused


def test_a_console_says_what_is_wrong_with_its_options() -> None:
    assert "127.0.0.1:7070" in processes.headrace("console", "--http", "7072").refused(2)
    assert "headrace://HOST:PORT" in processes.headrace("console", "--url", "http://127.0.0.1:7070").refused(2)
    assert "--tls-key" in processes.headrace("console", "--tls-certificate", "absent.pem").refused(2)

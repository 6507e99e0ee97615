"""The list of servers over every protocol, from the real `headrace serve`."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx

import headrace
from headrace.aio import AsyncClient
from headrace.cli.server.settings import described, load, origins
from tests.server_process import ServerProcess


def test_a_server_lists_itself_over_flight_and_http(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path}", "--set", "advertised_name=broker.example")
    try:
        with headrace.connect(server.url) as client:
            (listed,) = client.list_servers()
            assert listed.addresses == {
                "http": f"http://broker.example:{server.port}",
                "flight": f"headrace://broker.example:{server.flight_port}",
            }
            assert (listed.version, listed.started_us > 0) == (headrace.__version__, True)
            (again,) = asyncio.run(AsyncClient(client).list_servers())
            assert (again.id, again.started_us) == (listed.id, listed.started_us)
            running = client.describe_settings()
            assert running.server_id == listed.id
            settings = {each.name: (each.value, each.origin) for each in running.settings}
            assert settings["advertised_name"] == ("broker.example", "--set")
            assert settings["http"] == (f"127.0.0.1:{server.port}", "--http")
            assert settings["broker.topics_max"] == (10_000, "default")
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60.0, trust_env=False) as http:
            (over_http,) = http.get("/v1/servers").json()["servers"]
            assert (over_http["id"], over_http["addresses"]) == (listed.id, listed.addresses)
    finally:
        server.close()


def test_the_front_page_redirects_to_a_console(tmp_path: Path) -> None:
    console = f"http://{socket.gethostname()}:7072/"
    server = ServerProcess(f"file:{tmp_path}", "--set", f"console_url={console}")
    try:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/", trust_env=False, timeout=60.0)
        assert (answer.status_code, answer.headers["location"]) == (307, console)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"]
    finally:
        server.close()


def test_the_password_of_a_store_is_in_no_settings() -> None:
    settings = load({"store": "postgresql://ann:secret@db/headrace"}, (), {}, None)
    places = origins({"store": "postgresql://ann:secret@db/headrace", "http": None}, (), {}, None)
    shown = {each.name: each for each in described(settings, places)}
    assert (shown["store"].value, shown["store"].origin) == ("postgresql://ann:***@db/headrace", "--store")
    assert shown["http"].origin == "default" and "secret" not in repr(shown)

"""`headrace token`, and servers that others can reach."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import httpx

from tests.cli.processes import PATIENCE_SECONDS, Server, eventually, headrace


def create(store: Path, *arguments: str) -> dict[str, str]:
    made: dict[str, str] = headrace("token", "create", *arguments, "--store", f"file:{store}", "--json").json()
    return made


def test_tokens_while_a_server_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Server(store) as server:
        assert server.run("topic", "create", "orders").code == 0
        admin = create(store, "admin")
        till = create(store, "till", "--publish", "orders*", "--read", "nothing")
        wait_for(server, 401)
        assert "no token" in server.run("topic", "list").refused(4)
        assert server.run("topic", "list", "--json", HEADRACE_TOKEN=admin["token"]).json() == ["orders"]
        assert server.run("produce", "orders", "--token", till["token"], stdin="a\n").code == 0
        refused = server.run("consume", "orders", HEADRACE_TOKEN=till["token"]).refused(4)
        assert "till" in refused and "read" in refused
        assert "hr_" not in refused

        listed = headrace("token", "list", "--store", f"file:{store}", "--json").json()
        assert [(each["name"], each["rights"]) for each in listed] == [
            ("admin", {"manage": ["*"], "publish": ["*"], "read": ["*"]}),
            ("till", {"publish": ["orders*"], "read": ["nothing"]}),
        ]
        table = headrace("token", "list", HEADRACE_STORE=f"file:{store}").out
        assert "publish orders*" in table
        for secret in (admin["token"], till["token"]):
            assert secret not in table and secret not in server.err

        assert headrace("token", "revoke", till["id"], "--store", f"file:{store}").code == 0
        wait_for(server, 401, till["token"])
        assert server.stop() == 0


def wait_for(server: Server, status: int, token: str = "hr_none_none") -> None:
    headers = {"Authorization": f"Bearer {token}"}
    eventually(lambda: server.get("/v1/topics", headers=headers).status_code == status)


def test_a_token_is_shown_once_and_only_as_a_hash_in_the_store(tmp_path: Path) -> None:
    shown = headrace("token", "create", "admin", "--store", f"file:{tmp_path}/store")
    [token] = shown.lines()
    assert token.startswith("hr_") and "not shown again" in shown.err
    secret = token.split("_", 2)[2].encode()
    assert all(secret not in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


def test_the_last_token_of_a_server_that_others_can_reach(tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = create(store, "admin")
    with Server(store, "--http", "0.0.0.0:0") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert httpx.get(f"{url}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS).status_code == 200
        gone = headrace("token", "revoke", made["id"], "--store", f"file:{store}")
        assert gone.code == 0 and "the last one" in gone.err
        time.sleep(1.3)
        # It does not open to everyone.
        assert httpx.get(f"{url}/v1/topics", timeout=PATIENCE_SECONDS).status_code == 401
        assert server.stop() == 0


def test_ipv6_loopback_needs_no_token(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        return
    with Server(tmp_path / "store", "--http", "[::1]:0") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.get("/health/live").status_code == 200
        assert server.stop() == 0


def test_refusals(tmp_path: Path) -> None:
    store = ("--store", f"file:{tmp_path}/store")
    assert "no tokens" in headrace("token", "list", *store).out
    assert "there is no token" in headrace("token", "revoke", "nobody", *store).refused(1)
    assert "name" in headrace("token", "create", "", *store).refused(2)
    assert "characters" in headrace("token", "create", "x", "--read", "", *store).refused(2)
    assert "file:" in headrace("token", "list", "--store", "memory:").refused(2)

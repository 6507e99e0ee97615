"""`headrace token`, and servers that others can reach."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import httpx

from headrace import connect
from headrace.broker import Broker
from headrace.storage.open import open_store
from tests.cli.processes import PATIENCE_SECONDS, Server, eventually, execute, headrace, in_terminal


def create(store: Path, *arguments: str) -> dict[str, str]:
    made: dict[str, str] = headrace("token", "create", *arguments, "--yes", "--store", f"file:{store}", "--json").json()
    return made


def make_store(store: Path) -> None:
    """What a server leaves behind."""
    open_store(f"file:{store}").close()


def test_tokens_with_an_end_and_rotation(tmp_path: Path) -> None:
    store, audit = tmp_path / "store", tmp_path / "audit.jsonl"
    make_store(store)
    with_audit = ("--audit-log", str(audit))
    made = create(store, "till", "--publish", "orders", "--producer", "till-7", "--expires", "90d", *with_audit)
    rotated = headrace("token", "rotate", "till", "--keep", "1h", "--store", f"file:{store}", "--json", *with_audit)
    new = rotated.json()
    listed = {each["id"]: each for each in headrace("token", "list", "--store", f"file:{store}", "--json").json()}
    old = listed[made["id"]]
    assert 3_590_000_000 < old["expires_us"] - new["created_us"] <= 3_600_000_000
    assert new["expires_us"] - new["created_us"] == 90 * 86_400 * 1_000_000
    assert (new["rights"], new["producers"]) == ({"publish": ["orders"]}, ["till-7"])
    table = headrace("token", "list", "--store", f"file:{store}").out
    assert "expires" in table and "last used" in table and "till-7" in table
    assert "--expires" in headrace("token", "create", "x", "--expires", "soon", "--store", f"file:{store}").refused(2)
    assert "no valid token" in headrace("token", "rotate", "nobody", "--store", f"file:{store}").refused(2)
    assert headrace("token", "revoke", made["id"], "--store", f"file:{store}", *with_audit).code == 0
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["event"], line["operation"], line["token"]) for line in lines] == [
        ("done", "create_token", made["id"]),
        ("done", "rotate_token", new["id"]),
        ("done", "revoke_token", made["id"]),
    ]
    assert all(line["principal"].startswith("os:") and line["address"] == "local" for line in lines)
    assert audit.stat().st_mode & 0o777 == 0o600
    for secret in (made["token"], new["token"]):
        assert secret.split("_", 2)[2] not in audit.read_text() + table


def test_a_token_that_only_moves_groups_forward(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store)
    assert not create(store, "free", "--read", "orders")["forward_only"]
    assert create(store, "careful", "--read", "orders", "--forward-only")["forward_only"]
    free, careful = headrace("token", "list", "--store", f"file:{store}", "--json").json()
    assert (free["forward_only"], careful["forward_only"]) == (False, True)
    shown = [
        line for line in headrace("token", "list", "--store", f"file:{store}").out.splitlines() if "forward" in line
    ]
    assert len(shown) == 1
    with Broker.open(f"file:{store}") as broker:
        assert [grant.forward_only for token in broker.access.list() for grant in token.grants] == [False, True]
        rotated = broker.access.rotate("careful", keep_seconds=0)[0]
        assert rotated.grants[0].forward_only


def test_tokens_may_be_required_on_loopback_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    serve = ("serve", "--store", f"file:{store}", "--http", "127.0.0.1:0", "--flight", "off", "--require-tokens")
    assert "require_tokens is set" in headrace(*serve).refused(2)
    made, stored = create(store, "admin", "--expires", "1d"), ("--store", f"file:{store}")
    audit = tmp_path / "audit.jsonl"
    with Server(store, "--require-tokens", "--audit-log", str(audit)) as server:
        assert server.run("topic", "list").refused(4)
        shown = server.run("whoami", HEADRACE_TOKEN=made["token"]).out
        assert "admin" in shown and "expires" in shown and "manage" in shown
        assert server.run("whoami", "--json", HEADRACE_TOKEN=made["token"]).json()["token_id"] == made["id"]
        assert server.run("topic", "create", "orders", HEADRACE_TOKEN=made["token"]).code == 0
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        assert [(line["event"], line["operation"], line["principal"]) for line in lines] == [
            ("refused", "list_actions", "unknown"),
            ("refused", "list_topics", "unknown"),
            ("done", "create_topic", "admin"),
        ]
        assert {line["address"] for line in lines} == {"127.0.0.1"}
        eventually(lambda: '"used_us": null' not in headrace("token", "list", *stored, "--json").out)
        assert headrace("token", "revoke", made["id"], "--store", f"file:{store}").code == 0
        wait_for(server, 401)
        assert server.stop() == 0


def test_tokens_while_a_server_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Server(store) as server:
        assert server.run("topic", "create", "orders").code == 0
        admin = create(store, "admin")
        till = create(store, "till", "--publish", "orders*", "--read", "nothing")
        wait_for(server, 401)
        assert "no token" in server.run("topic", "list").refused(4)
        (listed,) = server.run("topic", "list", "--json", HEADRACE_TOKEN=admin["token"]).json()
        assert listed["name"] == "orders"
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


def test_a_store_keeps_what_it_is_told_while_tokens_are_changed_beside_its_server(tmp_path: Path) -> None:
    store = tmp_path / "store"
    admin = None
    for _ in range(2):
        with Server(store) as server:
            for _ in range(3):
                # A command that closes the catalog last would delete its log of writes: the server must hold it.
                made = create(store, "admin")
                wait_for(server, 200, made["token"])
                assert (store / "catalog.sqlite-wal").exists()
            if admin is not None:
                assert server.get("/v1/topics/kept", headers={"Authorization": f"Bearer {admin}"}).status_code == 200
            admin = made["token"]
            if not server.run("topic", "list", "--json", HEADRACE_TOKEN=admin).json():
                assert server.run("topic", "create", "kept", HEADRACE_TOKEN=admin).code == 0
            assert server.stop() == 0


def wait_for(server: Server, status: int, token: str = "hr_none_none") -> None:
    headers = {"Authorization": f"Bearer {token}"}
    eventually(lambda: server.get("/v1/topics", headers=headers).status_code == status)


def test_a_token_is_shown_once_and_only_as_a_hash_in_the_store(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    shown = headrace("token", "create", "admin", "--store", f"file:{tmp_path}/store")
    [token] = shown.lines()
    assert token.startswith("hr_") and "not shown again" in shown.err
    secret = token.split("_", 2)[2].encode()
    assert all(secret not in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


def test_the_last_token_of_a_server_that_others_can_reach(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store)
    made = create(store, "admin")
    with Server(store, "--http", "0.0.0.0:0") as server:
        assert "plain text" in server.err
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert httpx.get(f"{url}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS).status_code == 200
        gone = headrace("token", "revoke", made["id"], "--store", f"file:{store}")
        assert gone.code == 0 and "the last token" in gone.err
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
    assert "there is no store here" in headrace("token", "list", *store).refused(2)
    assert "there is no store here" in headrace("token", "create", "admin", *store).refused(2)
    assert not (tmp_path / "store").exists()
    make_store(tmp_path / "store")
    assert "no tokens" in headrace("token", "list", *store).out
    assert "does not exist" in headrace("token", "revoke", "nobody", *store).refused(1)
    assert "name" in headrace("token", "create", "", *store).refused(2)
    assert "characters" in headrace("token", "create", "x", "--read", "", *store).refused(2)
    assert "file:" in headrace("token", "list", "--store", "memory:").refused(2)


def test_tokens_of_a_running_server(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with Server(tmp_path / "store", "--audit-log", str(audit)) as server:
        url = ("--url", server.flight_url)
        # Without any tokens everyone on this machine may do everything, and so make the first one.
        admin = headrace("token", "create", "admin", *url, "--json").json()
        assert headrace("token", "list", *url).code == 4
        as_admin = {"HEADRACE_TOKEN": admin["token"]}
        till = headrace("token", "create", "till", "--publish", "orders", *url, "--json", **as_admin).json()
        assert "full access" not in till and till["rights"] == {"publish": ["orders"]}
        for command in (["list"], ["create", "mine"], ["rotate", "admin"], ["revoke", admin["id"]]):
            denied = headrace("token", *command, *url, HEADRACE_TOKEN=till["token"]).refused(4)
            assert "no right to administer" in denied, command
        rotated = headrace("token", "rotate", "till", "--keep", "0s", *url, "--json", **as_admin).json()
        names = [each["name"] for each in headrace("token", "list", *url, "--json", **as_admin).json()]
        assert sorted(names) == ["admin", "till", "till"]
        assert headrace("token", "revoke", rotated["id"], *url, **as_admin).code == 0
        assert "does not exist" in headrace("token", "revoke", rotated["id"], *url, **as_admin).refused(1)
        done = [json.loads(line) for line in audit.read_text().splitlines() if '"done"' in line]
        assert [(line["operation"], line.get("principal")) for line in done][:2] == [
            ("create_token", "anyone"),
            ("create_token", "admin"),
        ]
        assert done[1]["name"] == "till" and done[1]["token"] == till["id"]
        assert admin["token"].split("_", 2)[2] not in audit.read_text()
        assert server.stop() == 0


def test_the_first_token_of_a_server_in_use_says_who_will_be_refused(tmp_path: Path) -> None:
    store = ("--store", f"file:{tmp_path}/store")
    with Server(tmp_path / "store") as server:
        url = ("--url", server.flight_url)
        server.post("topics", {"name": "orders"})
        with connect(server.flight_url) as client:
            with client.producer("orders", producer_id="till-7") as producer:
                producer.send(b"a").result()
            with client.consumer("orders", group="billing"):
                said = headrace("token", "create", "admin", *url).refused(2)
                assert said == (
                    "with the first token every caller without one is refused within a second (later with --grace "
                    "10m); in use: 1 topic, group billing of orders (1 member), producer till-7 of orders: "
                    "add --yes to confirm"
                )
            said = headrace("token", "create", "admin", *store).refused(2)
            assert "in use: 1 topic, group billing of orders: add --yes" in said
            asked = in_terminal("n", "token", "create", "admin", *url)
            assert asked.code != 0 and "group billing" not in asked.out and "producer till-7 of orders" in asked.out
            assert "Create the first token?" in asked.out
            assert client.list_tokens() == [], "nobody was shut out"
        admin = headrace("token", "create", "admin", "--yes", *url, "--json").json()["token"]
        second = headrace("token", "create", "till", *url, "--json", HEADRACE_TOKEN=admin)
        assert second.code == 0, "only the first one asks"
        assert server.stop() == 0


def test_the_server_that_other_commands_call_is_meant_and_not_a_directory(tmp_path: Path) -> None:
    make_store(tmp_path / "headrace-data")
    create(tmp_path / "headrace-data", "here")
    with Server(tmp_path / "elsewhere") as server:

        def listed(*arguments: str, url: str = "", store: str = "", home: str = "/nonexistent") -> list[str]:
            variables = {"HEADRACE_URL": url, "HEADRACE_STORE": store}
            named = {name: value for name, value in variables.items() if value}
            said = execute("token", "list", "--json", *arguments, cwd=tmp_path, XDG_CONFIG_HOME=home, **named)
            return [each["name"] for each in said.json()]

        url, here, home = server.flight_url, "file:./headrace-data", str(tmp_path)
        assert listed(url=url) == [] and listed(url=url, store=here) == []
        assert headrace("profile", "add", "there", "--url", url, "--no-token", XDG_CONFIG_HOME=home).code == 0
        assert headrace("profile", "use", "there", XDG_CONFIG_HOME=home).code == 0
        assert listed(home=home) == []
        assert listed("--store", here, url=url) == ["here"]
        assert listed() == ["here"]

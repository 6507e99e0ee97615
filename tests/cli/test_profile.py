"""`headrace profile`, and which server a command calls."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.processes import Server, headrace


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "config")


def test_a_profile_names_a_server_for_all_commands(server: Server, home: str) -> None:
    add = headrace("profile", "add", "local", "--url", server.flight_url, "--no-token", XDG_CONFIG_HOME=home)
    assert "now in use" in add.out
    assert headrace("topic", "list", "--json", XDG_CONFIG_HOME=home).code == 0
    headrace("profile", "add", "away", "--url", "headrace://127.0.0.1:1", "--no-token", XDG_CONFIG_HOME=home)
    assert headrace("topic", "list", "--json", XDG_CONFIG_HOME=home).code == 0, "the first stays in use"
    headrace("profile", "use", "away", XDG_CONFIG_HOME=home)
    assert "127.0.0.1:1" in headrace("topic", "list", XDG_CONFIG_HOME=home).refused(3)
    # By name for one command, which wins over the environment; the environment wins over the one in use.
    away = {"XDG_CONFIG_HOME": home, "HEADRACE_URL": "headrace://127.0.0.1:2"}
    assert headrace("--profile", "local", "topic", "list", "--json", **away).code == 0
    assert "127.0.0.1:2" in headrace("topic", "list", **away).refused(3)
    assert headrace("topic", "list", "--url", server.flight_url, **away).code == 0
    rows = headrace("profile", "list", "--json", XDG_CONFIG_HOME=home).json()
    assert [(row["name"], row["in_use"]) for row in rows] == [("away", True), ("local", False)]
    assert "no profile is in use" in headrace("profile", "remove", "away", XDG_CONFIG_HOME=home).out
    assert "does not exist" in headrace("--profile", "away", "topic", "list", XDG_CONFIG_HOME=home).refused(2)


def test_a_token_is_stored_for_its_owner_only_and_never_shown(home: str) -> None:
    url = "headrace://127.0.0.1:1"
    headrace("profile", "add", "prod", "--url", url, stdin="hr_abc_secret\n", XDG_CONFIG_HOME=home)
    file = Path(home) / "headrace" / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "hr_abc_secret" in file.read_text()
    shown = headrace("profile", "list", XDG_CONFIG_HOME=home)
    assert "secret" not in shown.out + shown.err
    file.chmod(0o644)
    assert "chmod 600" in headrace("topic", "list", XDG_CONFIG_HOME=home).refused(2)


def test_a_token_of_a_profile_goes_to_its_server_only(tmp_path: Path, home: str) -> None:
    with Server(tmp_path / "store") as server:
        made = headrace("token", "create", "admin", "--store", f"file:{tmp_path}/store", "--json").json()
        headrace("profile", "add", "here", "--url", server.flight_url, stdin=made["token"] + "\n", XDG_CONFIG_HOME=home)
        assert headrace("whoami", "--json", XDG_CONFIG_HOME=home).json()["name"] == "admin"
        assert headrace("whoami", "--url", server.flight_url, XDG_CONFIG_HOME=home).code == 4
        assert server.stop() == 0


def test_refusals(home: str, tmp_path: Path) -> None:
    assert "--url is" in headrace("profile", "add", "x", "--url", "http://a", XDG_CONFIG_HOME=home).refused(2)
    assert "does not exist" in headrace("profile", "use", "x", XDG_CONFIG_HOME=home).refused(1)
    assert "no profiles" in headrace("profile", "list", XDG_CONFIG_HOME=home).out
    (tmp_path / "config" / "headrace").mkdir(parents=True)
    (tmp_path / "config" / "headrace" / "profiles.json").write_text("no JSON")
    assert "repair or delete it" in headrace("topic", "list", XDG_CONFIG_HOME=home).refused(2)

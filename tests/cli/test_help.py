"""Help, completion, versions and wrong usage, by the command that is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import typer.main

from headrace.cli.commands.index import SECTIONS
from headrace.cli.main import app
from tests.cli.processes import Server, environment, execute, headrace


def app_commands() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for name, command in app_commands().items():
        found.append((name,))
        found += [(name, verb) for verb in getattr(command, "commands", ())]
    return found


def test_the_commands_of_the_design() -> None:
    expected = (
        "backup bench client client/list config config/check config/show console consume debug debug/bundle doctor "
        "group group/create group/delete group/describe group/list group/seek "
        "outbox outbox/create outbox/relay pipeline pipeline/check pipeline/list pipeline/run pipeline/test produce "
        "profile profile/add profile/list profile/remove profile/use "
        "serve source source/list source/reset spark spark/checkpoint status "
        "table table/iceberg table/infer table/sql token token/create token/list token/revoke token/rotate "
        "top topic topic/alter topic/copy topic/create topic/delete topic/describe topic/export topic/import "
        "topic/list topic/purge topic/trim "
        "verify verify/check version whoami"
    )
    assert sorted("/".join(each) for each in commands()[1:]) == expected.split()


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command) or "headrace")
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    told = headrace(*command, "--help")
    assert told.code == 0 and told.err == ""
    assert f"Usage: {' '.join(('headrace', *command))}" in told.out
    assert headrace(*command, "-h").out == told.out


def test_examples() -> None:
    for command in ("serve", "console", "produce", "consume", "doctor", "bench"):
        assert f"headrace {command}" in headrace(command, "--help").out.split("Examples:")[1]


def test_version() -> None:
    assert execute("version").out.startswith(f"headrace {version('headrace')} (Python ")
    assert execute("version", "--json").json()["headrace"] == version("headrace")


def imported(*arguments: str) -> set[str]:
    """The libraries that a command imports."""
    code = (
        f"import sys\nfrom headrace.cli.main import run\nrun({list(arguments)!r})\nprint(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment())
    return {name.partition(".")[0] for name in ended.stderr.splitlines()[-1].split()} & HEAVY


HEAVY = {
    "asyncio",
    "httpx",
    "litestar",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlalchemy",
    "ssl",
    "uvicorn",
}


def test_what_is_heavy_is_loaded_only_by_commands_that_need_it(server: Server) -> None:
    for arguments in (
        ["--help"],
        ["topic", "--help"],
        ["topic", "create", "--help"],
        ["profile", "list"],
        ["--version"],
    ):
        assert imported(*arguments) == set(), arguments
    assert imported("topic", "list", "--json", "--url", server.flight_url) == {"numpy", "pyarrow"}


def test_the_index_says_what_the_commands_say() -> None:
    for section in SECTIONS.values():
        for name, line in section.items():
            command = app_commands()[name]
            assert " ".join((command.help or "").split("\n\n")[0].split()) == line, name


def test_wrong_usage() -> None:
    assert "No such command 'topics'" in execute("topics").refused(2)
    assert "Missing argument" in headrace("topic", "create").refused(2)
    assert "--partitions" in headrace("topic", "create", "x", "--partitions", "many").refused(2)


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://127.0.0.1:1", "http://[", "http://x\ny"])
def test_servers_that_are_none(url: str) -> None:
    ended = headrace("topic", "list", "--url", url)
    assert ended.code == (3 if url.endswith(":1") else 2), ended
    assert ended.err.count("\n") == 1 and "--url" in ended.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "headrace" in headrace("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").out


def test_completion_of_words() -> None:
    completed = execute(_HEADRACE_COMPLETE="complete_bash", COMP_WORDS="headrace to", COMP_CWORD="1")
    assert completed.out.split() == ["top", "topic", "token"]


def test_the_environment_of_tests_has_no_settings() -> None:
    assert not any(name.startswith("HEADRACE_") for name in environment())

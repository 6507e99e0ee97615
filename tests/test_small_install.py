"""What `pip install headrace` brings is enough for the client and the commands, and names the rest where it is missing.

The packages of the extras are blocked in a process of its own; `make release` tries it in a clean environment.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headrace.extras import _OF_BROKER, _OF_SERVER
from tests.server_process import ROOT

BLOCKED = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(_OF_BROKER | _OF_SERVER)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + program], capture_output=True, text=True)


def test_the_client_and_every_command_are_imported_without_the_server() -> None:
    done = run("""
import headrace
names = [name for name in headrace.__all__ if name not in
    ("Broker", "BrokerSettings", "Subscription", "TopicDefaults", "testing")]
assert all(getattr(headrace, name) for name in names)
import headrace.aio, headrace.load, headrace.verify, headrace.pytest_plugin
from headrace.cli.main import run
assert run(["--help"]) == 0
assert run(["topic", "list", "--url", "http://127.0.0.1:1"]) == 3
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["serve"], ["doctor", "file:./nothing"], ["token", "list", "--store", "memory:"]]
)
def test_a_command_that_needs_the_server_names_it_in_one_line(arguments: list[str]) -> None:
    done = run(f"from headrace.cli.main import run; sys.exit(run({arguments!r}))")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "the server is not installed" in done.stderr and "pip install 'headrace[server]'" in done.stderr


@pytest.mark.parametrize("name", ["Broker", "testing"])
def test_a_program_that_needs_the_broker_learns_which_extra(name: str) -> None:
    done = run(f"from headrace import {name}")
    assert "ModuleNotFoundError: the broker is not installed" in done.stderr
    assert "pip install 'headrace[broker]'" in done.stderr


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(ROOT) / "pyproject.toml").read_text())["project"]

    def names(lines: list[str]) -> set[str]:
        return {line.partition(">")[0].partition("[")[0] for line in lines} - {"headrace"}

    assert names(project["optional-dependencies"]["broker"]) == _OF_BROKER
    assert names(project["optional-dependencies"]["server"]) == _OF_SERVER
    assert not (_OF_BROKER | _OF_SERVER) & names(project["dependencies"])

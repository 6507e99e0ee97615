"""What `pip install headrace` brings is enough for the client and the commands, and names the rest where it is missing.

The packages of the extras are blocked in a process of its own; `make release` tries it in a clean environment.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.extras import EXTRAS
from tests.server_process import ROOT, ServerProcess

PACKAGES = sorted(package for _, packages in EXTRAS.values() for package in packages)
BLOCKED = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with everything."""
    server = ServerProcess(f"file:{tmp_path_factory.mktemp('store')}/store")
    yield server.url
    server.close()


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + program], capture_output=True, text=True)


def test_the_client_and_every_command_are_imported_without_the_server() -> None:
    done = run("""
import headrace
names = [name for name in headrace.__all__ if name not in
    ("Broker", "BrokerSettings", "TopicDefaults", "testing")]
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


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["table", "sql", "SELECT 1"], "DuckDB is not installed (duckdb is missing): pip install 'headrace[duckdb]'"),
        (
            ["table", "iceberg", "orders", "--catalog-uri", "sqlite:///:memory:"],
            "Iceberg is not installed (pyiceberg is missing): pip install 'headrace[iceberg]'",
        ),
        (["console"], "the console is not installed (uvicorn is missing): pip install 'headrace[console]'"),
        (
            ["pipeline", "check", "pipelines/land.toml"],
            "Spark is not installed (pyspark is missing): pip install 'headrace[spark]'",
        ),
    ],
)
def test_a_command_that_needs_an_extra_names_it_in_one_line(url: str, arguments: list[str], told: str) -> None:
    program = f"import os; os.environ['HEADRACE_URL'] = {url!r}; from headrace.cli.main import run"
    done = run(f"{program}; sys.exit(run({arguments!r}))")
    assert (done.returncode, done.stderr) == (2, f"headrace: {told}\n")


@pytest.mark.parametrize(
    "program, told",
    [
        ("import headrace.faststream", "FastStream is not installed (faststream is missing)"),
        ("import headrace; headrace.table('orders', url='headrace://127.0.0.1:1')", "DuckDB is not installed"),
        ("import headrace; headrace.tracing.enable()", "tracing is on: OpenTelemetry is not installed"),
    ],
)
def test_a_program_that_needs_an_extra_learns_which(program: str, told: str) -> None:
    last = run(program).stderr.splitlines()[-1]
    assert told in last and "pip install 'headrace[" in last


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(ROOT) / "pyproject.toml").read_text())["project"]

    def names(lines: list[str]) -> set[str]:
        return {line.partition(">")[0].partition("[")[0] for line in lines} - {"headrace"}

    extras = project["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"bench", "dev", "docs", "quick"}
    assert names(extras["broker"]) == EXTRAS["broker"][1] and names(extras["server"]) == EXTRAS["server"][1]
    assert not set(PACKAGES) & names(project["dependencies"])
    for extra, (_, packages) in EXTRAS.items():
        required = " ".join(extras[extra])
        assert all(package in required for package in packages), extra

"""The examples, and the examples in docstrings, run."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import headrace
import headrace.aio
import headrace.client
import headrace.testing
from tests.server_process import ROOT, ServerProcess

EXAMPLES = sorted(path.name for path in (Path(ROOT) / "examples").glob("*.py") if not path.name.startswith("demo"))
LINES_MAX = 60
PATIENCE_SECONDS = 60.0
MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (headrace.client, headrace.aio, headrace.testing)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = ServerProcess(f"file:{tmp_path_factory.mktemp('examples') / 'store'}")
    yield server.url
    server.close()


def run(*arguments: str) -> str:
    # The package may be installed from before the plugin was there; naming it twice does no harm.
    environment = {**os.environ, "PYTEST_PLUGINS": "headrace.pytest_plugin"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def test_examples_do_what_they_say(url: str) -> None:
    assert "1002 orders are on the disk" in run("examples/produce.py", url)
    assert "1002 orders billed, lag 0" in run("examples/consume_in_a_group.py", url)
    assert len(run("examples/follow.py", url, "5").splitlines()) == 5
    assert "the last read is b'page 99'" in run("examples/use_asyncio.py", url)


def test_copies_of_the_group_example_started_one_after_another_share_the_work(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path / 'store'}?durability=os")
    try:
        with headrace.connect(server.url) as client:
            client.create_topic("orders", partitions=6)
            values = pa.array([b"%d" % number for number in range(100_000)])
            with client.producer("orders") as producer:
                producer.send_batch(pa.record_batch({"value": values, "key": values}))
            command = [sys.executable, "examples/consume_in_a_group.py", server.url]
            copies = []
            for _ in range(3):
                copies.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                assert copies[-1].stdout is not None
                # The next one joins once this one is at work.
                assert b"mine now" in copies[-1].stdout.readline()
            told = [copy.communicate(timeout=60) for copy in copies]
            assert [copy.returncode for copy in copies] == [0, 0, 0], told
            assert client.describe_group("orders", "billing").lag_messages == 0
    finally:
        server.close()


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """An example that runs until it is told to stop."""
    command, environment = [sys.executable, *arguments], {**os.environ, **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_three_processes_share_a_group_and_survive_a_kill(url: str) -> None:
    assert "3000 jobs done, " in run("examples/group_of_processes.py", url)


def test_a_fastapi_service_publishes_and_reads_along(url: str) -> None:
    arguments = ("-m", "uvicorn", "--app-dir", "examples", "--port", "0", "fastapi_service:app")
    with started(*arguments, HEADRACE_URL=url) as service:
        assert service.stdout is not None
        address = next(found[0] for line in service.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        for cents in (100, 250):
            answer = httpx.post(f"{address}/orders", json={"customer": "ann", "cents": cents}, timeout=PATIENCE_SECONDS)
            assert (answer.status_code, answer.json()["status"]) == (201, "written")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while httpx.get(f"{address}/revenue", timeout=PATIENCE_SECONDS).json() != {"ann": 350}:
            assert time.monotonic() < deadline
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)


def test_dataframes_go_in_and_come_out(url: str) -> None:
    told = run("examples/dataframes.py", url)
    assert "4 readings sent" in told and "a     22.0" in told and "(4, 3) rows and columns in polars" in told


def test_invoices_are_written_once_across_a_kill(url: str) -> None:
    count = 50_000
    with headrace.connect(url) as client:
        client.create_topic("sales", partitions=2)
        client.create_topic("invoices")
        with client.producer("sales") as producer:
            producer.send_batch(pa.table({"value": [b"ann:%d" % number for number in range(count)]}))
        with started("examples/etl_exactly_once.py", url) as etl:
            while client.offsets("invoices")[0][1] == 0:
                assert etl.poll() is None or client.offsets("invoices")[0][1] > 0
            etl.kill()
        assert "invoices written" in run("examples/etl_exactly_once.py", url)
        assert "0 invoices written" in run("examples/etl_exactly_once.py", url)
        cents = [json.loads(value)["cents"] for value in client.table("invoices")["value"].to_pylist()]
        assert sorted(cents) == list(range(count))


def test_poison_messages_go_to_a_topic_of_their_own(url: str) -> None:
    told = run("examples/poison_messages.py", url)
    assert "total: 400" in told and "dead: cents: 200 because the message at offset 1" in told


def test_every_cell_of_the_notebook_runs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", url)
    cells = (Path(ROOT) / "examples" / "notebook.py").read_text().split("# %%")
    space: dict[str, object] = {}
    shown = [_shown(cell.partition("\n")[2], space) for cell in cells if not cell.startswith(" [markdown]")]
    assert len(shown) == 7
    assert shown[-2] == (20, 59)


def _shown(cell: str, space: dict[str, object]) -> object:
    """What a notebook shows below a cell: its last expression."""
    tree = ast.parse(cell)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), space)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), space)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), space)


def test_a_worker_that_is_asked_to_stop_commits_and_leaves(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("tasks")
        with client.producer("tasks") as producer:
            producer.send_batch(pa.table({"value": [b"task"] * 250}))
        with started("examples/graceful_stop.py", url) as worker:
            assert worker.stdout is not None and worker.stdout.readline() == "working\n"
            while client.describe_group("tasks", "workers").lag_messages:
                assert worker.poll() is None
            worker.send_signal(signal.SIGTERM)
            assert worker.stdout.read() == "stopped after 250 tasks\n"
            assert worker.wait(PATIENCE_SECONDS) == 0
        assert not client.describe_group("tasks", "workers").members


def test_a_group_reads_again_from_a_time_on(url: str) -> None:
    assert run("examples/reprocess.py", url).splitlines() == [
        "first: ['before', 'after']",
        "again: ['after']",
        "without a group: [b'after']",
    ]


def test_examples_of_tests_pass() -> None:
    assert "2 passed" in run("-m", "pytest", "-q", "examples/test_my_code.py", "examples/test_my_async_code.py")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_short(name: str) -> None:
    assert len((Path(ROOT) / "examples" / name).read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0

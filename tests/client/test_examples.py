"""The examples, and the examples in docstrings, run."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
import headrace.aio
import headrace.client
import headrace.testing
from tests.server_process import ROOT, ServerProcess

EXAMPLES = ["produce.py", "consume_in_a_group.py", "follow.py", "use_asyncio.py"]
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


def test_example_of_a_test_passes() -> None:
    assert "1 passed" in run("-m", "pytest", "-q", "examples/test_my_code.py")


@pytest.mark.parametrize("name", [*EXAMPLES, "test_my_code.py"])
def test_examples_are_short(name: str) -> None:
    assert len((Path(ROOT) / "examples" / name).read_text().splitlines()) <= 40


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0

"""A fork after `connect`: what was made before is refused at once in the new process, which ends, and harms nobody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import connect
from tests.server_process import ROOT, ServerProcess

PATIENCE_SECONDS = 60.0

PARENT = """
import os, sys
import headrace
from headrace.core.errors import Forked

client = headrace.connect(sys.argv[1])
{before}
child = os.fork()
if child == 0:
    try:
        {inside}
    except Forked as error:
        print(error, flush=True)
        sys.exit(7)
    sys.exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
{after}
client.close()
sys.exit(code)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = ServerProcess(f"file:{tmp_path_factory.mktemp('fork') / 'store'}")
    with connect(started.url) as client:
        client.create_topic("orders")
    yield started
    started.close()


def run(server: ServerProcess, tmp_path: Path, before: str, inside: str, after: str = "") -> tuple[int, str]:
    """What became of the child, and what it said."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(before=before, inside=inside, after=after))
    command = [sys.executable, "-W", "error", str(script), server.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("before", "inside", "after", "what"),
    [
        ("client.list_topics()", "client.list_topics()", "client.list_topics()", "this client"),
        ("client.list_topics()", "headrace.connect(sys.argv[1]).list_topics()", "client.list_topics()", "gRPC"),
        (
            "producer = client.producer('orders', linger_seconds=3600); producer.send(b'one').result()",
            "producer.send(b'two').result()",
            "producer.send(b'three').result(); producer.close()",
            "this producer",
        ),
        (
            "producer = client.producer('orders')",
            "producer.flush()",
            "producer.close()",
            "this producer",
        ),
        (
            "consumer = client.consumer('orders', group='billing')",
            "consumer.poll()",
            "assert len(client.describe_group('orders', 'billing').members) == 1; consumer.close()",
            "this consumer",
        ),
        (
            "batches = client.follow('orders', start='earliest')",
            "next(batches)",
            "batches.close()",
            "this reader",
        ),
    ],
)
def test_what_was_made_before_a_fork_is_refused_at_once(
    server: ServerProcess, tmp_path: Path, before: str, inside: str, after: str, what: str
) -> None:
    code, said = run(server, tmp_path, before, inside, after)
    assert code == 7
    assert said.startswith(f"{what} was used before this process was forked")
    assert "call headrace.connect()" in said and "spawn" in said


def test_a_child_that_uses_nothing_of_it_ends_as_any_other(server: ServerProcess, tmp_path: Path) -> None:
    before = "producer = client.producer('orders'); producer.send(b'one').result()"
    leaving = "producer.close(); client.close(); del producer, client"
    assert run(server, tmp_path, before, leaving, "producer.send(b'two').result(); producer.close()") == (0, "")


def test_connecting_for_the_first_time_in_the_child_works(server: ServerProcess, tmp_path: Path) -> None:
    code, said = run(server, tmp_path, "", "print(headrace.connect(sys.argv[1]).list_topics())", "client.list_topics()")
    assert (code, said) == (0, "['orders']\n")

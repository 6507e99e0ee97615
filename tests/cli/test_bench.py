"""`headrace bench`: on its own server and on a given one, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Client, connect
from headrace.core.errors import TopicNotFound
from tests.cli.processes import PATIENCE_SECONDS, Running, Server, headrace
from tests.cli.test_flight import flight_url


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with connect(flight_url(server)) as made:
        yield made


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_its_own_server(tmp_path: Path) -> None:
    ended = headrace("bench", "--messages", "5000", "--directory", str(tmp_path))
    assert ended.code == 0, ended
    assert "verified: every message arrived once and in order" in ended.out
    assert "published" in ended.out and "p99 ms" in ended.out and "#" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_given_server_several_processes_and_json(server: Server, client: Client) -> None:
    options = ["--messages", "20001", "--batch", "500", "--producers", "2", "--consumers", "2", "--groups", "2"]
    told = server.run("bench", *options, "--value-bytes", "30", "--url", flight_url(server), "--json").json()
    assert told["verified"] is True
    assert told["groups"] == [{"missing": 0, "doubled": 0, "out_of_order": 0, "foreign": 0}] * 2
    assert told["load"]["messages"] == 20_001 and told["load"]["value_bytes"] == 30
    assert sum(bar["messages"] for bar in told["histogram"]) == 2 * 20_001
    assert 0 < told["acknowledged_ms"]["p50"] <= told["acknowledged_ms"]["p99"]
    assert 0 < told["end_to_end_ms"]["p50"] <= told["end_to_end_ms"]["p99"]
    assert told["published_per_second"] > 0 and told["read_per_second"] > 0
    assert client.list_topics() == []


def test_single_messages_at_a_rate_and_no_readers(server: Server) -> None:
    options = ["--messages", "200", "--batch", "1", "--rate", "1000", "--linger", "0", "--keys", "0"]
    told = server.run("bench", *options, "--consumers", "0", "--url", flight_url(server), "--json").json()
    assert told["verified"] is None and told["groups"] == []
    assert told["published_per_second"] < 1_100


def test_messages_of_others_are_found(server: Server, client: Client) -> None:
    # Slow enough for another message to come in between.
    options = ["--messages", "8000", "--batch", "100", "--rate", "1000"]
    with Running("bench", *options, "--url", flight_url(server)) as running:
        wait_for(lambda: client.list_topics() != [])
        with client.producer(client.list_topics()[0]) as producer:
            producer.send(b"not of this load").result()
        assert running.wait() == 1
        assert "group 0: 0 missing, 0 duplicated, 0 out of order, 1 foreign" in running.err
        assert "verified" not in running.out.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_everything(server: Server, client: Client, number: signal.Signals) -> None:
    with Running("bench", "--messages", "1000000", "--batch", "10", "--rate", "10", "--url", flight_url(server)) as run:
        wait_for(lambda: any(has_messages(client, topic) for topic in client.list_topics()))
        workers = children_of(run.process.pid)
        assert len(workers) == 2
        assert run.stop(number) == 130
        assert run.err == ""
    assert not any(lives(worker) for worker in workers)
    assert client.list_topics() == []


def has_messages(client: Client, topic: str) -> bool:
    try:
        return sum(end for _, end in client.offsets(topic).values()) > 0
    except TopicNotFound:
        return False


def test_its_own_server_is_ended_by_signals(tmp_path: Path) -> None:
    with Running("bench", "--messages", "1000000", "--rate", "10", "--directory", str(tmp_path)) as run:
        wait_for(lambda: len(children_of(run.process.pid)) == 3)
        started = children_of(run.process.pid)
        assert run.stop() == 130
    assert not any(lives(process) for process in started)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_ends_the_load_with_one_line(server: Server, client: Client) -> None:
    with Running("bench", "--messages", "1000000", "--batch", "10", "--rate", "10", "--url", flight_url(server)) as run:
        wait_for(lambda: any(has_messages(client, topic) for topic in client.list_topics()))
        os.kill(children_of(run.process.pid)[0], signal.SIGKILL)
        assert run.wait() == 5
        assert run.err.startswith("headrace: a process of the load ended with -9") and run.err.count("\n") == 1
    assert client.list_topics() == []


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--messages", "0", "--messages is 0: it must be a number from 1 to"),
        ("--value-bytes", "10", "--value-bytes is 10: it must be a number from 24 to"),
        ("--producers", "100", "--producers is 100: it must be a number from 1 to 64"),
        ("--linger", "-1", "--linger is -1.0: "),
        ("--timeout", "0", "--timeout is 0.0: "),
        ("--messages", "many", "--messages"),
        ("--url", "ftp://x", "--url is"),
        ("--ca", "/nowhere/ca.pem", "/nowhere/ca.pem: No such file"),
        ("--directory", "/nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_what_is_refused(option: str, value: str, told: str) -> None:
    given = ["--url", "headrace://127.0.0.1:1"] if option == "--ca" else []
    assert told in headrace("bench", option, value, *given).refused(2)


def test_no_server_there() -> None:
    line = headrace("bench", "--url", "headrace://127.0.0.1:1", "--timeout", "1").refused(3)
    assert "127.0.0.1:1" in line

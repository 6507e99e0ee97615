"""`headrace consume`: alone and as a member of a group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO

import pytest

from headrace.cli.exits import Failure
from headrace.cli.formats import parse_format
from headrace.cli.positions import Time, parse_place
from tests.cli.processes import HEADRACE, PATIENCE_SECONDS, Server, environment


@pytest.fixture
def numbers(server: Server, topic: str) -> str:
    """A topic with 0 to 9, the even ones in partition 0."""
    for partition in (0, 1):
        lines = "".join(f"k{number}={number}\n" for number in range(partition, 10, 2))
        server.run("produce", topic, "--partition", str(partition), "--key-separator", "=", stdin=lines)
    return topic


@contextmanager
def consuming(server: Server, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A consumer that goes on, and its output."""
    process = subprocess.Popen(
        [HEADRACE, "consume", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        env=environment(HEADRACE_URL=server.url),
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()
        process.stderr.close()


def test_everything_that_is_there(server: Server, numbers: str) -> None:
    assert server.run("consume", numbers).lines() == list("0246813579")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("earliest", "0246813579"),
        ("latest", ""),
        ("3", "6879"),
        ("99", ""),
        ("-1", "89"),
        ("-99", "0246813579"),
        ("1970-01-01", "0246813579"),
        ("2999-01-01T00:00:00+02:00", ""),
        ("1h", "0246813579"),
    ],
)
def test_from(server: Server, place: str, expected: str) -> None:
    server.run("topic", "create", "shared", "--partitions", "2")
    if not server.run("consume", "shared", "--max", "1").out:
        for partition in (0, 1):
            lines = "".join(f"{number}\n" for number in range(partition, 10, 2))
            server.run("produce", "shared", "--partition", str(partition), stdin=lines)
    assert server.run("consume", "shared", "--from", place).lines() == list(expected)


def test_some_partitions_and_some_messages(server: Server, numbers: str) -> None:
    assert server.run("consume", numbers, "--partition", "1").lines() == list("13579")
    assert server.run("consume", numbers, "--partition", "1", "--partition", "0", "--max", "7").lines() == list(
        "1357902"
    )
    assert "partition 5" in server.run("consume", numbers, "--partition", "5").refused(1)


def test_formats(server: Server, numbers: str) -> None:
    line = server.run("consume", numbers, "--max", "1", "--format", "{topic}\\t{partition} {offset} {{{key}}} {value}")
    assert line.lines() == [f"{numbers}\t0 0 {{k0}} 0"]
    told = json.loads(server.run("consume", numbers, "--max", "1", "--json").out)
    moment = datetime.fromisoformat(told.pop("timestamp"))
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 600
    assert told == {"partition": 0, "offset": 0, "key": "k0", "value": "0"}


def test_fields_that_messages_may_lack() -> None:
    line = parse_format("{key}|{attributes}|{timestamp}|{seqno}", "t")
    row = {"key": None, "attributes": [("a", b"1"), ("b", b"2")], "timestamp": datetime(2026, 7, 1, tzinfo=UTC)}
    assert line(row | {"seqno": 7}) == b"|a=1,b=2|2026-07-01T00:00:00+00:00|7\n"


@pytest.mark.parametrize("text", ["{nope}", "{", "}", "{}"])
def test_formats_that_are_none(text: str) -> None:
    with pytest.raises(Failure, match="--format has"):
        parse_format(text, "t")


def test_places() -> None:
    assert parse_place("-5") == -5
    assert parse_place("2026-07-01T12:00:00.5Z") == Time(1_782_907_200_500_000)
    assert parse_place("2026-07-01T12:00:00") == parse_place("2026-07-01T14:00:00+02:00")
    for wrong in ("", "yesterday", "--1", "1.5", "5w", "0001-01-01"):
        with pytest.raises(Failure, match="--from is"):
            parse_place(wrong)


def test_a_group_goes_on_where_it_was(server: Server, numbers: str) -> None:
    first = server.run("consume", numbers, "--group", "billing", "--max", "4").lines()
    rest = server.run("consume", numbers, "--group", "billing").lines()
    assert len(first) == 4 and sorted(first + rest) == list("0123456789")
    assert server.run("consume", numbers, "--group", "billing").lines() == []
    described = server.run("group", "describe", numbers, "billing", "--json").json()
    assert described["lag_messages"] == 0 and described["members"] == []


def test_a_new_group_may_begin_elsewhere(server: Server, numbers: str) -> None:
    assert server.run("consume", numbers, "--group", "late", "--from", "latest").lines() == []
    server.run("produce", numbers, stdin="new\n")
    again = server.run("consume", numbers, "--group", "late", "--from", "earliest")
    assert again.lines() == ["new"]
    assert "goes on where it was" in again.err
    assert server.run("consume", numbers, "--group", "timed", "--from", "1h").lines() != []
    assert "group seek" in server.run("consume", numbers, "--group", "x", "--from", "-5").refused(2)
    assert "--partition" in server.run("consume", numbers, "--group", "x", "--partition", "0").refused(2)


def test_following(server: Server, numbers: str) -> None:
    with consuming(server, numbers, "--follow", "--from", "-1", "--format", "{partition} {value}") as (process, out):
        assert [out.readline() for _ in range(2)] == ["0 8\n", "1 9\n"]
        server.run("produce", numbers, "--partition", "1", stdin=b"live\n\xff\n")
        assert [out.readline() for _ in range(2)] == ["1 live\n", "1 \\xff\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_following_some_partitions_up_to_a_count(server: Server, numbers: str) -> None:
    with consuming(server, numbers, "-f", "--partition", "0", "--from", "latest", "--max", "2") as (process, out):
        time.sleep(1.0)
        server.run("produce", numbers, "--partition", "1", stdin="other\n")
        server.run("produce", numbers, "--partition", "0", stdin="a\nb\nc\n")
        assert process.wait(PATIENCE_SECONDS) == 0
        assert out.read() == "a\nb\n"


def test_following_as_a_group(server: Server, numbers: str) -> None:
    with consuming(server, numbers, "--follow", "--group", "live") as (process, out):
        assert sorted(out.readline().strip() for _ in range(10)) == list("0123456789")
        server.run("produce", numbers, stdin="more\n")
        assert out.readline() == "more\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
    # It has left, and what it printed is committed.
    described = server.run("group", "describe", numbers, "live", "--json").json()
    assert described["members"] == [] and described["lag_messages"] == 0


def test_the_end_of_a_topic_ends_following(server: Server) -> None:
    server.run("topic", "create", "brief")
    server.run("produce", "brief", stdin="a\n")
    with consuming(server, "brief", "--follow") as (process, out):
        assert out.readline() == "a\n"
        server.run("topic", "delete", "brief", "--yes")
        assert process.wait(PATIENCE_SECONDS) == 1


def test_a_reader_that_has_enough(server: Server, topic: str) -> None:
    server.run("produce", topic, stdin="line\n" * 200_000)
    source, sink = os.pipe()
    process = subprocess.Popen(
        [HEADRACE, "consume", topic], stdout=sink, stderr=subprocess.PIPE, env=environment(HEADRACE_URL=server.url)
    )
    os.close(sink)
    assert os.read(source, 5) == b"line\n"
    os.close(source)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, b"")

"""`produce` and `consume` over Arrow Flight: the same lines, codes and messages as over HTTP."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.processes import Result, Running, Server, headrace
from tests.cli.test_flight import flight_url


def run(server: Server, *arguments: str, stdin: str | bytes = b"") -> Result:
    return headrace(*arguments, stdin=stdin, HEADRACE_URL=flight_url(server))


def following(server: Server, *arguments: str) -> Running:
    return Running("consume", *arguments, "--follow", variables={"HEADRACE_URL": flight_url(server)})


@pytest.fixture
def numbers(server: Server, topic: str) -> str:
    """A topic with 0 to 9, the even ones in partition 0."""
    messages = [{"value": str(number), "key": f"k{number}", "partition": number % 2} for number in range(10)]
    server.post(f"topics/{topic}/messages", {"messages": messages})
    return topic


def messages(server: Server, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(server, "consume", topic, "--json").lines()]


def test_lines_with_everything(server: Server, topic: str) -> None:
    options = ("--key-separator", ":", "--attribute", "kind=sale", "--codec", "gzip", "--partition", "1")
    assert run(server, "produce", topic, *options, stdin="k:one\ntwo").lines() == [f"{topic}: 2 of 2 lines written"]
    told = [(each["partition"], each.get("key"), each["value"], each["attributes"]) for each in messages(server, topic)]
    assert told == [(1, "k", "one", {"kind": "sale"}), (1, None, "two", {"kind": "sale"})]
    assert json.loads(run(server, "consume", topic, "--json", "--max", "1", "--no-decode").out)["codec"] == "gzip"
    assert server.run("consume", topic).lines() == ["one", "two"], "the same over HTTP"


def test_a_file_that_is_sent_again_is_written_once(server: Server, topic: str) -> None:
    arguments = ("produce", topic, "--producer-id", "till-7", "--resume", "monday", "--batch", "2", "--json")
    assert run(server, *arguments, stdin="a\nb\nc\n").json()["written"] == 3
    again = run(server, *arguments, stdin="a\nb\nc\nd\n").json()
    assert (again["written"], again["duplicates"]) == (1, 3)
    nothing = run(server, *arguments, stdin="a\n")
    assert nothing.code == 6 and "nothing is new" in nothing.err
    changed = run(server, *arguments, stdin="a\nb\nc\nx\n")
    assert changed.code == 1 and "1 lines differ from what till-7 wrote as monday" in changed.err


def test_another_file_with_the_same_producer_id_is_written_too(server: Server, topic: str) -> None:
    arguments = ("produce", topic, "--producer-id", "till-7", "--batch", "1")
    for number in (1, 2):
        done = run(server, *arguments, stdin=f"day {number}\nevening {number}\n")
        assert done.lines() == [f"{topic}: 2 of 2 lines written"]
    found = messages(server, topic)
    assert sorted(each["value"] for each in found) == ["day 1", "day 2", "evening 1", "evening 2"]
    assert sorted(each["seqno"] for each in found) == [1, 2, 3, 4]


def test_what_is_refused(server: Server, topic: str) -> None:
    server.run("topic", "alter", topic, "--message-bytes-max", "10")
    line = run(server, "produce", topic, "--batch", "2", stdin="a\nb\nc\nmuch too long for it\n").refused(1)
    assert line.startswith("line 4: ") and line.endswith("(2 of 2 lines written)"), line
    assert "does not exist" in run(server, "produce", "nowhere", stdin="a\n").refused(1)
    assert "does not exist" in run(server, "consume", "nowhere").refused(1)
    assert "partition 5" in run(server, "consume", topic, "--partition", "5").refused(1)
    assert "group seek" in run(server, "consume", topic, "--group", "x", "--from", "-5").refused(2)


def test_servers_that_are_none() -> None:
    away = headrace("produce", "x", "--url", "headrace://127.0.0.1:1", "--retry-seconds", "0", stdin="a\n").refused(3)
    assert "127.0.0.1:1" in away
    assert "--url is" in headrace("consume", "x", "--url", "headrace://a:b").refused(2)
    assert "--ca" in headrace("consume", "x", "--url", "headrace+tls://a", "--ca", "/nowhere").refused(2)
    assert "with produce, consume and bench" in headrace("topic", "list", "--url", "headrace://a").refused(2)


@pytest.mark.parametrize(
    ("place", "expected"),
    [("earliest", "0246813579"), ("latest", ""), ("3", "6879"), ("-1", "89"), ("1h", "0246813579"), ("2999-01-01", "")],
)
def test_from(server: Server, place: str, expected: str) -> None:
    server.post("topics", {"name": "shared", "partitions": 2})
    rows = [
        {"value": str(number), "partition": number % 2, "producer_id": "test", "seqno": number} for number in range(10)
    ]
    # Written once, by whichever test comes first.
    server.post("topics/shared/messages", {"messages": rows})
    assert run(server, "consume", "shared", "--from", place).lines() == list(expected)


def test_some_partitions_and_some_messages(server: Server, numbers: str) -> None:
    assert run(server, "consume", numbers, "--partition", "1", "--partition", "0", "--max", "7").lines() == list(
        "1357902"
    )


def test_following(server: Server, numbers: str) -> None:
    with following(server, numbers, "--from", "-1", "--format", "{partition} {value}") as consumer:
        assert [consumer.out.readline() for _ in range(2)] == ["0 8\n", "1 9\n"]
        run(server, "produce", numbers, "--partition", "1", stdin=b"live\n\xff\n")
        assert [consumer.out.readline() for _ in range(2)] == ["1 live\n", "1 \\xff\n"]
        assert consumer.stop(signal.SIGINT) == 130
        assert consumer.err == ""


def test_the_end_of_a_topic_ends_following(server: Server) -> None:
    server.post("topics", {"name": "brief"})
    server.post("topics/brief/messages", {"messages": [{"value": "a"}]})
    with following(server, "brief") as consumer:
        assert consumer.out.readline() == "a\n"
        run(server, "produce", "brief", stdin="b\n")
        assert consumer.out.readline() == "b\n"
        server.run("topic", "delete", "brief", "--yes")
        assert consumer.wait() == 1
        assert consumer.err.count("\n") == 1


def test_a_group_goes_on_where_it_was(server: Server, numbers: str) -> None:
    first = run(server, "consume", numbers, "--group", "billing", "--max", "4").lines()
    rest = run(server, "consume", numbers, "--group", "billing").lines()
    assert len(first) == 4 and sorted(first + rest) == list("0123456789")
    assert run(server, "consume", numbers, "--group", "billing").lines() == []
    described = server.run("group", "describe", numbers, "billing", "--json").json()
    assert described["lag_messages"] == 0 and described["members"] == []


def test_a_group_is_only_moved_past_what_was_printed(server: Server, topic: str) -> None:
    # More than is read at a time, so that the last reading has more than is still wanted.
    run(server, "produce", topic, stdin="".join(f"{number}\n" for number in range(25_000)))
    first = run(server, "consume", topic, "--group", "some", "--max", "12001").lines()
    described = server.run("group", "describe", topic, "some", "--json").json()
    assert len(first) == 12_001 and described["lag_messages"] == 25_000 - 12_001


def test_a_new_group_may_begin_elsewhere(server: Server, numbers: str) -> None:
    assert run(server, "consume", numbers, "--group", "late", "--from", "latest").lines() == []
    run(server, "produce", numbers, stdin="new\n")
    again = run(server, "consume", numbers, "--group", "late", "--from", "earliest")
    assert again.lines() == ["new"]
    assert "continues at its committed offsets" in again.err
    assert len(run(server, "consume", numbers, "--group", "timed", "--from", "1h").lines()) == 11


def test_following_as_a_group(server: Server, numbers: str) -> None:
    with following(server, numbers, "--group", "live") as consumer:
        assert sorted(consumer.out.readline().strip() for _ in range(10)) == list("0123456789")
        run(server, "produce", numbers, stdin="more\n")
        assert consumer.out.readline() == "more\n"
        assert consumer.stop(signal.SIGINT) == 130
    described = server.run("group", "describe", numbers, "live", "--json").json()
    assert described["members"] == []

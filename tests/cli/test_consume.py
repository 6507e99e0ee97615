"""`headrace consume`: alone and as a member of a group."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.cli.exits import Failure
from headrace.cli.messages.formats import parse_format
from headrace.cli.messages.positions import parse_from
from headrace.core.messages import READ_SCHEMA
from headrace.core.positions import AtTime, FromEnd
from tests.cli.processes import Running, Server, eventually


@pytest.fixture
def numbers(server: Server, topic: str) -> str:
    """A topic with 0 to 9, the even ones in partition 0."""
    messages = [{"value": str(number), "key": f"k{number}", "partition": number % 2} for number in range(10)]
    server.post(f"topics/{topic}/messages", {"messages": messages})
    return topic


def consuming(server: Server, *arguments: str) -> Running:
    """A consumer that goes on."""
    return Running("consume", *arguments, variables={"HEADRACE_URL": server.flight_url})


def described(server: Server, topic: str, group: str) -> Any:
    return server.run("group", "describe", topic, group, "--json").json()


def test_everything_stored(server: Server, numbers: str) -> None:
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
    server.post("topics", {"name": "shared", "partitions": 2})
    messages = [
        {"value": str(number), "partition": number % 2, "producer_id": "test", "seqno": number} for number in range(10)
    ]
    # Written once, by whichever test comes first.
    server.post("topics/shared/messages", {"messages": messages})
    assert server.run("consume", "shared", "--from", place).lines() == list(expected)


def test_some_partitions_and_some_messages(server: Server, numbers: str) -> None:
    assert server.run("consume", numbers, "--partition", "1").lines() == list("13579")
    assert server.run("consume", numbers, "--partition", "1", "--partition", "0", "--max", "7").lines() == list(
        "1357902"
    )
    assert "partition 5" in server.run("consume", numbers, "--partition", "5").refused(1)


def test_messages_that_fulfil_an_expression(server: Server, topic: str) -> None:
    messages = [
        {"value": json.dumps({"amount": number * 100}), "key": f"k{number}", "attributes": {"kind": kind}}
        for number, kind in enumerate(["order", "order", "order", "refund", "order", "order"])
    ]
    server.post(f"topics/{topic}/messages", {"messages": [*messages, {"value": "no JSON"}]})
    where = 'value.amount > 200 and attributes.kind == "order"'
    found = server.run("consume", topic, "--where", where, "--format", "{key}").lines()
    assert sorted(found) == ["k4", "k5"]
    assert server.run("consume", topic, "--where", where, "--max", "1", "--key", "k5", "--json").json()["key"] == "k5"
    refused = server.run("consume", topic, "--where", "value.amount >").refused(2)
    assert "it is no expression" in refused and "value.amount > 100" in refused


def test_formats(server: Server, numbers: str) -> None:
    line = server.run("consume", numbers, "--max", "1", "--format", "{topic}\\t{partition} {offset} {{{key}}} {value}")
    assert line.lines() == [f"{numbers}\t0 0 {{k0}} 0"]
    told = json.loads(server.run("consume", numbers, "--max", "1", "--json").out)
    moment = datetime.fromisoformat(told.pop("timestamp"))
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 600
    assert told == {"partition": 0, "offset": 0, "key": "k0", "value": "0"}


def test_fields_that_messages_may_lack() -> None:
    row = {"key": None, "attributes": [("a", b"1"), ("b", b"2")], "timestamp": datetime(2026, 7, 1, tzinfo=UTC)}
    table = pa.RecordBatch.from_pylist([row | {"seqno": 7, "partition": 0, "offset": 0, "value": b""}] * 2, READ_SCHEMA)
    line = parse_format("{key}|{attributes}|{timestamp}|{seqno}|{topic}")
    assert list(line.lines(table, "t")) == [b"|a=1,b=2|2026-07-01T00:00:00+00:00|7|t\n"] * 2
    assert list(parse_format("{{}}").lines(table, "t")) == [b"{}\n"] * 2


@pytest.mark.parametrize("text", ["{nope}", "{", "}", "{}"])
def test_formats_that_are_none(text: str) -> None:
    with pytest.raises(Failure, match="--format has"):
        parse_format(text)


def test_places() -> None:
    assert parse_from("-5") == FromEnd(5)
    assert parse_from("2026-07-01T12:00:00.5Z") == AtTime(1_782_907_200_500_000)
    assert parse_from("2026-07-01T12:00:00") == parse_from("2026-07-01T14:00:00+02:00")
    for wrong in ("", "yesterday", "--1", "1.5", "5w", "0001-01-01"):
        with pytest.raises(Failure, match="--from is"):
            parse_from(wrong)


def test_a_group_continues_where_it_was(server: Server, numbers: str) -> None:
    first = server.run("consume", numbers, "--group", "billing", "--max", "4").lines()
    rest = server.run("consume", numbers, "--group", "billing").lines()
    assert len(first) == 4 and sorted(first + rest) == list("0123456789")
    assert server.run("consume", numbers, "--group", "billing").lines() == []
    group = described(server, numbers, "billing")
    assert group["lag_messages"] == 0 and group["members"] == []


def test_consumers_of_a_fixed_group_read_by_modulo(server: Server, numbers: str) -> None:
    server.run("group", "create", numbers, "workers", "--consumers", "2").lines()
    odd = server.run("consume", numbers, "--group", "workers", "--consumer-index", "1", "--max", "3")
    assert odd.lines() == list("135")
    assert server.run("consume", numbers, "--group", "workers", "--consumer-index", "1").lines() == list("79")
    assert server.run("consume", numbers, "--group", "workers", "--consumer-index", "0").lines() == list("02468")
    assert described(server, numbers, "workers")["lag_messages"] == 0
    assert "0 to 1" in server.run("consume", numbers, "--group", "workers", "--consumer-index", "2").refused(1)
    assert "--group" in server.run("consume", numbers, "--consumer-index", "0").refused(2)
    both = server.run("consume", numbers, "--group", "workers", "--consumer-index", "0", "--from", "latest")
    assert "--from" in both.refused(2)


def test_a_new_group_may_begin_elsewhere(server: Server, numbers: str) -> None:
    assert server.run("consume", numbers, "--group", "late", "--from", "latest").lines() == []
    server.run("produce", numbers, stdin="new\n")
    again = server.run("consume", numbers, "--group", "late", "--from", "earliest")
    assert again.lines() == ["new"]
    assert "continues at its committed offsets" in again.err
    other = server.run("consume", numbers, "--group", "LATE", "--from", "latest")
    assert (other.lines(), other.err) == ([], ""), "names of groups that differ in case are of two groups"
    assert server.run("consume", numbers, "--group", "timed", "--from", "1h").lines() != []
    assert "group seek" in server.run("consume", numbers, "--group", "x", "--from", "-5").refused(2)
    assert "--partition" in server.run("consume", numbers, "--group", "x", "--partition", "0").refused(2)


def test_following(server: Server, numbers: str) -> None:
    with consuming(server, numbers, "--follow", "--from", "-1", "--format", "{partition} {value}") as consumer:
        assert [consumer.out.readline() for _ in range(2)] == ["0 8\n", "1 9\n"]
        server.run("produce", numbers, "--partition", "1", stdin=b"live\n\xff\n")
        assert [consumer.out.readline() for _ in range(2)] == ["1 live\n", "1 \\xff\n"]
        assert consumer.stop(signal.SIGINT) == 130
        assert consumer.err == ""


def test_following_some_partitions_up_to_a_count(server: Server, numbers: str) -> None:
    with consuming(server, numbers, "-f", "--partition", "0", "--from", "latest", "--max", "2") as consumer:

        def produce() -> bool:
            # Where "latest" is depends on when the consumer has come: it may be after the first lines, but not in them.
            server.run("produce", numbers, "--partition", "1", stdin="other\n")
            server.run("produce", numbers, "--partition", "0", stdin="a\nb\nc\n")
            return consumer.process.poll() is not None

        eventually(produce)
        assert consumer.wait() == 0
        assert consumer.out.read() == "a\nb\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_as_a_group(server: Server, numbers: str, number: signal.Signals) -> None:
    with consuming(server, numbers, "--follow", "--group", "live") as consumer:
        assert sorted(consumer.out.readline().strip() for _ in range(10)) == list("0123456789")
        server.run("produce", numbers, stdin="more\n")
        assert consumer.out.readline() == "more\n"
        # What was printed is committed, though not before it was printed.
        eventually(lambda: described(server, numbers, "live")["lag_messages"] == 0)
        assert consumer.stop(number) == 130
    assert described(server, numbers, "live")["members"] == [], "it has left"


def test_the_end_of_a_topic_ends_following(server: Server) -> None:
    server.post("topics", {"name": "brief"})
    server.post("topics/brief/messages", {"messages": [{"value": "a"}]})
    with consuming(server, "brief", "--follow") as consumer:
        assert consumer.out.readline() == "a\n"
        server.run("topic", "delete", "brief", "--yes")
        assert consumer.wait() == 1


def test_a_reader_that_has_enough(server: Server, topic: str) -> None:
    server.run("produce", topic, stdin="line\n" * 200_000)
    with consuming(server, topic) as consumer:
        assert consumer.out.readline() == "line\n"
        consumer.out.close()
        assert (consumer.wait(), consumer.err) == (0, "")

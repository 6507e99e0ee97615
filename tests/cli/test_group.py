"""`headrace group`."""

from __future__ import annotations

import httpx
import pytest

from tests.cli.processes import PATIENCE_SECONDS, Server, in_terminal


@pytest.fixture
def billing(server: Server, topic: str) -> str:
    """A topic with ten messages that the group `billing` has read."""
    messages = [{"value": str(number), "partition": number % 2} for number in range(10)]
    server.post(f"topics/{topic}/messages", {"messages": messages})
    offsets = [{"partition": partition, "offset": 5} for partition in (0, 1)]
    httpx.put(f"{server.url}/v1/topics/{topic}/groups/billing", json={}, timeout=PATIENCE_SECONDS).raise_for_status()
    server.post(f"topics/{topic}/groups/billing/offsets", {"offsets": offsets})
    return topic


def offsets(server: Server, topic: str, *arguments: str) -> list[int]:
    """Where the group is after a seek."""
    server.run("group", "seek", topic, *arguments, "--yes").lines()
    described = server.run("group", "describe", topic, arguments[0], "--json").json()
    return [each["committed"] for each in described["partitions"]]


def test_seeking(server: Server, billing: str) -> None:
    assert offsets(server, billing, "billing", "earliest") == [0, 0]
    assert offsets(server, billing, "billing", "3") == [3, 3]
    assert offsets(server, billing, "billing", "+1") == [4, 4]
    assert offsets(server, billing, "billing", "latest") == [5, 5]
    assert offsets(server, billing, "billing", "2", "--partition", "1") == [5, 2]
    assert offsets(server, billing, "billing", "1h") == [0, 0]
    assert offsets(server, billing, "billing", "2999-01-01") == [5, 5]
    assert offsets(server, billing, "billing", "-10m", "--partition", "0") == [0, 5]
    assert offsets(server, billing, "billing", "2999-01-01", "--partition", "0") == [5, 5]
    assert offsets(server, billing, "billing", "1:4") == [5, 4], "a partition that is not named stays"
    assert offsets(server, billing, "billing", "-2") == [3, 3]
    assert len(server.run("consume", billing, "--group", "billing").lines()) == 4


def test_a_seek_shows_what_it_does_and_skips_nothing_by_a_slip(server: Server, billing: str) -> None:
    server.run("group", "seek", billing, "billing", "1:2").lines()
    looked = server.run("group", "seek", billing, "billing", "latest", "--dry-run").lines()
    rows = [line.split() for line in looked if line.strip("─ ")]
    assert rows[0] == ["partition", "was", "at", "goes", "to", "effect"]
    assert rows[1:] == [["0", "5", "5", "stays"], ["1", "2", "5", "skips", "3", "messages"]]
    refused = server.run("group", "seek", billing, "billing", "latest").refused(2)
    assert refused == "this would skip 3 messages that group billing has not read, see --dry-run: add --yes to confirm"
    assert server.run("group", "seek", billing, "billing", "latest", "--json").refused(2) == refused
    again = server.run("group", "seek", billing, "billing", "0", "--dry-run", "--json").json()
    assert again == [
        {"partition": 0, "before": 5, "offset": 0, "skipped": 0, "read_again": 5},
        {"partition": 1, "before": 2, "offset": 0, "skipped": 0, "read_again": 2},
    ]
    described = server.run("group", "describe", billing, "billing", "--json").json()
    assert [each["committed"] for each in described["partitions"]] == [5, 2], "nothing was moved"
    # Reading again loses nothing, and needs no answer.
    assert server.run("group", "seek", billing, "billing", "+1", "--partition", "0").code == 0, "it is at the end"
    assert server.run("group", "seek", billing, "billing", "earliest").code == 0


def test_a_seek_asks_on_a_terminal(server: Server, billing: str) -> None:
    server.run("group", "seek", billing, "billing", "earliest").lines()
    for answer, committed in (("n", [0, 0]), ("y", [5, 5])):
        arguments = ("group", "seek", billing, "billing", "latest")
        shown = in_terminal(answer, *arguments, HEADRACE_URL=server.flight_url).out
        assert "skips 5 messages" in shown and "Skip 10 messages that group billing has not read?" in shown
        described = server.run("group", "describe", billing, "billing", "--json").json()
        assert [each["committed"] for each in described["partitions"]] == committed


def test_seeking_wrongly(server: Server, billing: str) -> None:
    assert "does not exist" in server.run("group", "seek", billing, "other", "earliest").refused(1)
    assert "partition 9" in server.run("group", "seek", billing, "billing", "1", "--partition", "9").refused(1)
    assert "partitions 0 to 1" in server.run("group", "seek", billing, "billing", "9:1").refused(1)
    assert "the position is" in server.run("group", "seek", billing, "billing", "somewhere").refused(2)
    for words in (("--dryrun", "latest"), ("latest", "--dryrun"), ("-x", "latest"), ("-10m", "--to", "1")):
        assert "No such option" in server.run("group", "seek", billing, "billing", *words).refused(2), words


def test_lag(server: Server, billing: str) -> None:
    server.run("produce", billing, "--partition", "0", stdin="f\ng\n")
    described = server.run("group", "describe", billing, "billing", "--json").json()
    assert [at["lag_messages"] for at in described["partitions"]] == [2, 0]
    assert "2 messages" in server.run("group", "describe", billing, "billing").out
    listed = server.run("group", "list", billing, "--json").json()
    assert [(group["name"], group["lag_messages"]) for group in listed] == [("billing", 2)]
    row = next(line for line in server.run("group", "list", billing).lines() if "billing" in line)
    assert row.split()[:4] == [billing, "billing", "0", "2"]
    assert (billing, "billing") in [
        (group["topic"], group["name"]) for group in server.run("group", "list", "--json").json()
    ]


def test_deleting(server: Server, billing: str) -> None:
    assert "add --yes" in server.run("group", "delete", billing, "billing").refused(2)
    assert server.run("group", "delete", billing, "billing", "--yes").code == 0
    assert "no groups yet" in server.run("group", "list", billing).out
    assert "does not exist" in server.run("group", "delete", billing, "billing", "-y").refused(1)


def test_creating(server: Server, topic: str) -> None:
    server.run("produce", topic, "--partition", "0", stdin="a\nb\n")
    assert "created group billing" in server.run("group", "create", topic, "billing", "--important").out
    made = server.run("group", "create", topic, "workers", "--consumers", "2", "--from", "latest", "--json").json()
    assert (made["consumers"], made["important"], made["read_from"], made["lag_messages"]) == (2, False, "latest", 0)
    assert server.run("group", "describe", topic, "billing", "--json").json()["important"] is True
    # Again: what is not named stays.
    again = server.run("group", "create", topic, "billing", "--json").json()
    assert (again["important"], again["lag_messages"]) == (True, 2)
    out = server.run("group", "create", topic, "workers", "--consumers", "3", "--important").out
    assert "3 fixed consumers, important" in out
    assert server.run("group", "create", topic, "billing", "--not-important", "--json").json()["important"] is False
    timed = server.run("group", "create", topic, "timed", "--from", "1h", "--json").json()
    assert timed["lag_messages"] == 2
    assert "earliest, latest or a time" in server.run("group", "create", topic, "x", "--from", "5").refused(2)
    assert "does not exist" in server.run("group", "create", "nothing", "x").refused(1)
    assert "did you mean 'billing'?" in server.run("group", "describe", topic, "biling").refused(1)
    assert server.run("group", "create", topic, "x", "--consumers", "0").code == 2


def test_creating_a_group_again_moves_nothing_and_says_so(server: Server) -> None:
    server.run("topic", "create", "regrouped")
    assert "created group billing" in server.run("group", "create", "regrouped", "billing").out
    assert "created group Billing" in server.run("group", "create", "regrouped", "Billing").out
    again = server.run("group", "create", "regrouped", "billing", "--from", "latest")
    assert "updated group billing" in again.out and "--from applies to new groups only" in again.err

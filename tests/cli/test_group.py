"""`headrace group`."""

from __future__ import annotations

import httpx
import pytest

from tests.cli.processes import PATIENCE_SECONDS, Server


@pytest.fixture
def billing(server: Server, topic: str) -> str:
    """A topic with ten messages that the group `billing` has read."""
    messages = [{"value": str(number), "partition": number % 2} for number in range(10)]
    server.post(f"topics/{topic}/messages", {"messages": messages})
    offsets = [{"partition": partition, "offset": 5} for partition in (0, 1)]
    httpx.put(f"{server.url}/v1/topics/{topic}/groups/billing", json={}, timeout=PATIENCE_SECONDS).raise_for_status()
    server.post(f"topics/{topic}/groups/billing/offsets", {"offsets": offsets})
    return topic


def offsets(server: Server, *arguments: str) -> list[int]:
    return [each["offset"] for each in server.run("group", "seek", *arguments, "--json").json()]


def test_seeking(server: Server, billing: str) -> None:
    assert offsets(server, billing, "billing", "earliest") == [0, 0]
    assert offsets(server, billing, "billing", "3") == [3, 3]
    assert offsets(server, billing, "billing", "latest") == [5, 5]
    assert offsets(server, billing, "billing", "2", "--partition", "1") == [5, 2]
    assert offsets(server, billing, "billing", "1h") == [0, 0]
    assert offsets(server, billing, "billing", "2999-01-01") == [5, 5]
    assert offsets(server, billing, "billing", "earliest", "--partition", "0") == [0, 5]
    assert offsets(server, billing, "billing", "2999-01-01", "--partition", "0") == [5, 5]
    assert offsets(server, billing, "billing", "-2") == [3, 3]
    assert len(server.run("consume", billing, "--group", "billing").lines()) == 4
    assert "next offset" in server.run("group", "seek", billing, "billing", "99").out


def test_seeking_wrongly(server: Server, billing: str) -> None:
    assert "does not exist" in server.run("group", "seek", billing, "other", "earliest").refused(1)
    assert "partition 9" in server.run("group", "seek", billing, "billing", "1", "--partition", "9").refused(1)
    assert "the position is" in server.run("group", "seek", billing, "billing", "somewhere").refused(2)


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
    assert server.run("group", "create", topic, "x", "--consumers", "0").code == 2


def test_creating_a_group_again_moves_nothing_and_says_so(server: Server) -> None:
    server.run("topic", "create", "regrouped")
    assert "created group billing" in server.run("group", "create", "regrouped", "billing").out
    assert "created group Billing" in server.run("group", "create", "regrouped", "Billing").out
    again = server.run("group", "create", "regrouped", "billing", "--from", "latest")
    assert "updated group billing" in again.out and "--from applies to new groups only" in again.err

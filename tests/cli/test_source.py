"""`headrace source` against a running server."""

from __future__ import annotations

import httpx

from tests.cli.processes import Server


def send(server: Server, topic: str, *seqnos: int) -> list[str]:
    messages = [{"value": str(seqno), "producer_id": "till 7/a", "seqno": seqno} for seqno in seqnos]
    answer = httpx.post(f"{server.url}/v1/topics/{topic}/messages", json={"messages": messages}, timeout=60)
    return [receipt["status"] for receipt in answer.json()["receipts"]]


def test_listing(server: Server, topic: str) -> None:
    assert "no sources" in server.run("source", "list", topic).out
    send(server, topic, 1, 4711)
    found = server.run("source", "list", topic, "--json").json()
    assert [(each["producer_id"], each["message_group_id"], each["last_seqno"]) for each in found] == [
        ("till 7/a", "", 4711)
    ]
    assert found[0]["partition"] in (0, 1)
    assert found[0]["last_seen_us"] > 0
    out = server.run("source", "list", topic, "--producer-id", "till 7/a").out
    assert "till 7/a" in out and "4711" in out and "last seen" in out
    assert server.run("source", "list", topic, "--producer-id", "other", "--json").json() == []
    assert "does not exist" in server.run("source", "list", "nothing").refused(1)


def test_resetting(server: Server, topic: str) -> None:
    send(server, topic, 5, 9)
    arguments = ("source", "reset", topic, "--producer-id", "till 7/a")
    assert "add --yes" in server.run(*arguments).refused(2)
    assert send(server, topic, 6) == ["duplicate"]
    assert "last seqno was 9" in server.run(*arguments, "--yes").out
    assert "no seqno to reset" in server.run(*arguments, "--yes").out
    assert send(server, topic, 6) == ["written"]
    reset = server.run(*arguments, "--yes", "--json").json()
    assert reset == {"producer_id": "till 7/a", "message_group_id": "", "forgotten_seqno": 6}
    unknown = server.run(*arguments, "--message-group-id", "lane", "--yes").refused(1)
    assert "message group 'lane'" in unknown

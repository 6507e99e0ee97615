"""`headrace status` and `headrace top`: what is seen of a running server."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.cli.remote.activity import groups, topics
from headrace.console.monitor.sample import Sample, parse
from tests.cli.processes import Server, eventually, headrace


def test_a_server_that_is_fine_and_one_that_is_not(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        server.post("topics", {"name": "orders"})
        server.run("produce", "orders", stdin="a\nb\n")
        server.run("consume", "orders", "--group", "billing", "--max", "2")
        said = server.run("status").lines()
        assert said[0].startswith("up    headrace ") and server.flight_url in said[0]
        assert said[2].endswith("no group is behind") and said[3:] == ["fine  nothing needs attention"]
        facts = server.run("status", "--json").json()
        assert facts["servers"][0]["addresses"]["flight"] == server.flight_url
        assert (facts["topics"], facts["health"]["state"], facts["problems"]) == (1, "fine", [])

        server.run("produce", "orders", stdin="c\n")
        eventually(lambda: server.run("status").code == 1)
        said = server.run("status").out.splitlines()
        assert said[2].endswith("1 group behind by 1 message")
        assert said[3].startswith("warning  group billing of orders: 1 message unread, the oldest for ")
        assert "and no member. Start its reader again" in said[3]
        assert said[4:] == ["         headrace group describe orders billing"]
        assert server.stop() == 0


def test_no_server_is_said_in_one_line() -> None:
    assert "no server at" in headrace("status", "--url", "headrace://127.0.0.1:1").refused(3)


def test_who_may_not_read_everything_sees_the_servers(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        made = headrace(
            "token", "create", "till", "--publish", "x", "--store", f"file:{tmp_path}/store", "--json"
        ).json()
        seen = server.run("status", HEADRACE_TOKEN=made["token"])
        assert seen.code == 0 and seen.out.startswith("up ") and "may not read all topics" in seen.err
        assert "may not read all topics" in server.run("top", "--once", HEADRACE_TOKEN=made["token"]).refused(4)
        assert server.stop() == 0


def test_top_once(server: Server, topic: str) -> None:
    server.run("group", "create", topic, "late")
    server.run("produce", topic, stdin="a\n")
    arguments = ("top", "--once", "--interval", "1", "--rows", "1000")
    found = json.loads(server.run(*arguments, "--json").out)
    assert topic in {each["topic"] for each in found["topics"]}
    assert (topic, "late", 1) in {(each["topic"], each["group"], each["lag_messages"]) for each in found["groups"]}
    assert "late" in server.run(*arguments).out


def test_rates_are_of_two_looks_and_of_all_servers() -> None:
    def look(seconds: float, written: int, lag: int) -> Sample:
        text = (
            f'headrace_messages_in_total{{topic="t"}} {written}\nheadrace_messages_in_total{{topic="t"}} 10\n'
            'headrace_topic_partitions{topic="t"} 3\nheadrace_topic_partitions{topic="t"} 3\n'
            'headrace_store_bytes{topic="t"} 700\nheadrace_store_bytes{topic="t"} 700\n'
            f'headrace_group_lag_messages{{topic="t",group="g"}} {lag}\n'
        )
        return parse([text], seconds)

    before, now = look(100.0, 0, 4), look(102.0, 60, 10)
    (topic,) = topics(before, now)
    assert (topic.messages_in, topic.partitions, topic.bytes_stored) == (30.0, 3, 700)
    (group,) = groups(before, now)
    assert (group.lag_messages, group.lag_growth) == (10, 3.0)
    # A server that was started again counts from 0.
    assert topics(now, look(104.0, 0, 0))[0].messages_in == 0.0

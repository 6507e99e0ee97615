"""`headrace topic`."""

from __future__ import annotations

import pytest

from headrace.cli.exits import Failure
from headrace.cli.options.topic_settings import parse_amount
from tests.cli.processes import Server


def test_the_life_of_a_topic(server: Server) -> None:
    made = server.run("topic", "create", "Orders/2026 ü", "--partitions", "3", "--retention", "7d")
    assert made.lines() == ["created topic Orders/2026 ü (3 partitions)"]
    found = server.run("topic", "describe", "orders/2026 Ü", "--json").json()
    assert found["name"] == "Orders/2026 ü"
    assert found["settings"]["retention_seconds"] == 7 * 86_400
    assert [each["end_offset"] for each in found["partitions"]] == [0, 0, 0]

    changed = server.run(
        "topic", "alter", "orders/2026 ü", "--partitions", "4", "--retention", "none", "--retention-bytes", "10G",
        "--deduplication", "payload", "--deduplication-window", "5m", "--deduplication-scope", "store",
        "--deduplication-window-messages", "5000",
        "--codecs", "raw,zstd", "--message-bytes-max", "2M", "--key-hash", "murmur2", "--timestamp-type", "broker",
        "--archive-after", "5m", "--archive-retention", "365d", "--local-retention", "1d",
        "--local-retention-bytes", "1G", "--json",
    ).json()  # fmt: skip
    assert len(changed["partitions"]) == 4
    assert changed["settings"] == {
        "retention_seconds": None,
        "retention_bytes": 10 << 30,
        "deduplication": "payload",
        "deduplication_window_seconds": 300,
        "deduplication_window_messages": 5_000,
        "deduplication_scope": "store",
        "codecs": ["raw", "zstd"],
        "message_bytes_max": 2 << 20,
        "key_hash": "murmur2",
        "timestamp_type": "broker",
        "archive": "off",
        "archive_after_seconds": 300,
        "archive_retention_seconds": 365 * 86_400,
        "local_retention_seconds": 86_400,
        "local_retention_bytes": 1 << 30,
        "value_schema": None,
        "partition_write_bytes_per_second": None,
        "partition_write_burst_bytes": None,
        "kafka_configs": {},
        "annotations": {},
    }
    server.run("group", "create", "orders/2026 ü", "billing")
    (listed,) = (each for each in server.run("topic", "list", "--json").json() if each["name"] == "Orders/2026 ü")
    stored = listed.pop("bytes_stored")
    assert listed == {"name": "Orders/2026 ü", "partitions": 4, "messages": 0, "groups": ["billing"]} and stored > 0
    assert "did you mean 'Orders/2026 ü'?" in server.run("topic", "describe", "order/2026 ü").refused(1)
    assert "did you mean" not in server.run("topic", "describe", "payments").refused(1)

    assert "add --yes" in server.run("topic", "delete", "orders/2026 ü").refused(2)
    assert server.run("topic", "delete", "orders/2026 ü", "--yes").lines() == ["deleted topic orders/2026 ü"]
    assert server.run("topic", "list", "--json").json() == []
    assert "no topics yet" in server.run("topic", "list").out
    assert "does not exist" in server.run("topic", "describe", "orders/2026 ü").refused(1)


def test_tables_for_people(server: Server, topic: str) -> None:
    server.run("produce", topic, stdin="a\nb\nc\n")
    listed = next(line for line in server.run("topic", "list").lines() if topic in line).split()
    assert listed[:3] == [topic, "2", "3"]
    described = server.run("topic", "describe", topic).out
    assert "message_bytes_max" in described and "1,048,576" in described
    assert "start offset" in described


def test_creating_again(server: Server, topic: str) -> None:
    again = server.run("topic", "create", topic, "--partitions", "2", "--json").json()
    assert len(again["partitions"]) == 2
    assert "alter the topic" in server.run("topic", "create", topic, "--retention", "1h").refused(1)
    assert "added, not removed" in server.run("topic", "alter", topic, "--partitions", "1").refused(1)


def test_wrong_values(server: Server, topic: str) -> None:
    assert "--retention is '7 weeks'" in server.run("topic", "alter", topic, "--retention", "7 weeks").refused(2)
    assert "nothing to change" in server.run("topic", "alter", topic).refused(2)
    for option in ("--message-bytes-max", "--deduplication-window", "--archive-after"):
        assert f"{option} is 'none': it must be" in server.run("topic", "alter", topic, option, "none").refused(2)
    assert "deduplication" in server.run("topic", "alter", topic, "--deduplication", "always").refused(1)
    assert "name" in server.run("topic", "create", "a\nb").refused(1)


def test_names_that_look_like_markup_are_shown_as_they_are(server: Server) -> None:
    server.run("topic", "create", "[bold]x[/bold]")
    assert "[bold]x[/bold]" in server.run("topic", "list").out
    assert server.run("topic", "delete", "[bold]x[/bold]", "-y").code == 0


def test_amounts() -> None:
    units = {"m": 60, "h": 3600}
    assert parse_amount("--x", "90", units) == 90
    assert parse_amount("--x", "90m", units) == 5400
    for wrong in ("", "m", "1.5h", "-1", "1 h", "²"):
        with pytest.raises(Failure, match="--x is"):
            parse_amount("--x", wrong, units)


def test_creating_a_topic_again_says_what_it_did(server: Server) -> None:
    assert server.run("topic", "create", "again").lines() == ["created topic again (1 partition)"]
    assert server.run("topic", "create", "again").lines() == ["topic again exists (1 partition), nothing changed"]
    assert server.run("topic", "create", "again", "--partitions", "3").lines() == [
        "topic again exists: 1 -> 3 partitions"
    ]


def test_a_new_topic_that_keeps_messages_for_ever_says_so_to_scripts(server: Server) -> None:
    made = server.run("topic", "create", "for-ever")
    assert made.code == 0
    assert "topic for-ever keeps its messages for ever: --retention 7d deletes older ones" in made.err
    for name, chosen in (("a-week", "7d"), ("meant", "none")):
        assert server.run("topic", "create", name, "--retention", chosen).err == ""
    assert server.run("topic", "create", "for-ever").err == "", "nothing was created"

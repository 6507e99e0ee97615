"""Messages out and in again: export, import, copy, purge, trim, and JSON from one command to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.processes import Server

LINES = b"\xff\x00\nplain\n\xe2\x82\xac\n\n"


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """A topic with bytes of all kinds, keys, attributes and a codec."""
    server.run("produce", topic, "--attribute", "kind=\udcff", "--key-separator", "p", stdin=LINES)
    server.run("produce", topic, "--codec", "gzip", stdin="compressed\n" * 3)
    return topic


def rows(server: Server, topic: str, *more: str) -> list[dict[str, Any]]:
    """What matters of the messages of a topic, in any order."""
    found = [json.loads(line) for line in server.run("consume", topic, "--json", "--no-decode", *more).lines()]
    for row in found:
        for name in ("partition", "offset", "timestamp", "producer_id", "message_group_id", "seqno"):
            row.pop(name, None)
    return sorted(found, key=json.dumps)


@pytest.mark.parametrize("name", ["file.parquet", "file.jsonl"])
def test_a_file_has_everything_and_comes_back(server: Server, filled: str, tmp_path: Path, name: str) -> None:
    file, copy = str(tmp_path / name), f"{filled}-copy"
    assert server.run("topic", "export", filled, file).lines() == [f"exported 7 messages of topic {filled} to {file}"]
    assert "--overwrite" in server.run("topic", "export", filled, file).refused(2)
    assert server.run("topic", "export", filled, file, "--overwrite", "--json").json()["messages"] == 7
    server.run("topic", "create", copy, "--partitions", "2")
    arguments = ("topic", "import", copy, file, "--keep-partitions", "--resume", "once")
    assert server.run(*arguments, "--json").json()["written"] == 7
    assert rows(server, copy) == rows(server, filled)
    for partition in ("0", "1"):
        assert rows(server, copy, "--partition", partition) == rows(server, filled, "--partition", partition)
    again = server.run(*arguments)
    assert again.code == 6 and "7 already written" in again.out
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing is left beside it"


def test_files_of_others(server: Server, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"value": ["text", "more"], "key": ["a", None]}), file)
    assert server.run("topic", "import", topic, str(file)).code == 0
    assert sorted(server.run("consume", topic, "--format", "{key}:{value}").lines()) == [":more", "a:text"]
    assert "--resume needs the partition" in server.run("topic", "import", topic, str(file), "--resume", "x").refused(1)
    pq.write_table(pa.table({"value": ["text"], "price": [1]}), file)
    assert "'price' is unknown" in server.run("topic", "import", topic, str(file)).refused(1)
    file.write_text("no parquet")
    assert "not a Parquet file" in server.run("topic", "import", topic, str(file)).refused(1)
    assert "cannot read" in server.run("topic", "import", topic, str(tmp_path / "none.jsonl")).refused(2)
    assert "--format parquet or jsonl" in server.run("topic", "export", topic, str(tmp_path / "x")).refused(2)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value": "a"}\nnonsense\n')
    assert "line 2 is b'nonsense'" in server.run("topic", "import", topic, str(lines)).refused(1)


def test_a_copy_is_repeated_safely_and_takes_what_is_new(server: Server, filled: str) -> None:
    copy = f"{filled}-copy"
    assert "does not exist" in server.run("topic", "copy", filled, copy).refused(1)
    server.run("topic", "create", copy, "--partitions", "3")
    assert f"copied 7 messages of topic {filled}" in server.run("topic", "copy", filled, copy).out
    assert rows(server, copy) == rows(server, filled)
    server.run("produce", filled, stdin="new\n")
    assert server.run("topic", "copy", filled, copy, "--json").json()["written"] == 1
    assert rows(server, copy) == rows(server, filled)
    assert "to itself" in server.run("topic", "copy", filled, filled.upper()).refused(2)


def test_purging_and_trimming(server: Server, filled: str) -> None:
    assert "add --yes" in server.run("topic", "purge", filled).refused(2)
    assert server.run("topic", "trim", filled, "--before", "1d", "--yes", "--json").json() == {
        "topic": filled,
        "deleted": 0,
        "left": 7,
    }
    assert "it must be a time" in server.run("topic", "trim", filled, "--before", "5", "--yes").refused(2)
    trim = ["topic", "trim", filled, "--yes"]
    assert "either --before or --before-offset" in server.run(*trim).refused(2)
    assert "--partition needs --before-offset" in server.run(*trim, "--before", "1d", "--partition", "0").refused(2)
    assert "is out of range" in server.run(*trim, "--before-offset", "99", "--partition", "0").refused(1)
    printed = server.run(*trim, "--before-offset", "1", "--partition", "0").out
    assert f"deleted 1 message of topic {filled}, 6 left" in printed
    assert f"deleted 6 messages of topic {filled}, 0 left" in server.run("topic", "purge", filled, "--yes").out
    server.run("produce", filled, "--partition", "0", stdin="after\n")
    (after,) = [json.loads(line) for line in server.run("consume", filled, "--json").lines()]
    assert after["value"] == "after" and after["offset"] > 0, "offsets are never used again"


def test_what_consume_prints_produce_reads_back(server: Server, filled: str) -> None:
    printed = server.run("consume", filled, "--json", "--no-decode").out
    copy = f"{filled}-copy"
    server.run("topic", "create", copy, "--partitions", "2")
    assert server.run("produce", copy, "--json", "--keep-partitions", stdin=printed).json()["written"] == 7
    assert rows(server, copy) == rows(server, filled)


def test_json_that_people_write(server: Server, topic: str) -> None:
    lines = '{"value": {"total": 1}, "key": "k"}\n{"value": "text", "attributes": {"a": "1"}}\n'
    server.run("produce", topic, "--json", "--attribute", "b=2", stdin=lines)
    said = sorted(server.run("consume", topic, "--format", "{key}|{attributes}|{value}").lines())
    assert said == ['k|b=2|{"total":1}', "|b=2,a=1|text"]
    assert "line 2 is" in server.run("produce", topic, "--json", stdin='{"value": "a"}\n{"valeu": "b"}\n').refused(1)
    assert "line 1 is" in server.run("produce", topic, "--json", stdin='{"value": "*", "encoding": "base64"}').refused(
        1
    )
    assert "JSON input" in server.run("produce", topic, "--json", "--key-separator", ":").refused(2)
    assert "--input is" in server.run("produce", topic, "--input", "xml").refused(2)
    assert "needs JSON" in server.run("produce", topic, "--keep-partitions").refused(2)


def test_files_delimiters_and_attributes_per_line(server: Server, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\0two\0")
    (tmp_path / "b").write_bytes(b"whole\nfile\n")
    one, other = str(tmp_path / "a"), str(tmp_path / "b")
    server.run("produce", topic, one, "--partition", "0", "--delimiter", "\\0")
    server.run("produce", topic, "--whole", other, "-", "--partition", "0", stdin="and stdin")
    server.run("produce", topic, "--partition", "0", "--delimiter", "<>", stdin="x<>y<z<>")
    found = [json.loads(line)["value"] for line in server.run("consume", topic, "--json").lines()]
    assert found == ["one", "two", "whole\nfile\n", "and stdin", "x", "y<z"]
    separators = ("--attributes-separator", "\\t", "--key-separator", "\\t", "--partition", "1")
    server.run("produce", topic, *separators, stdin="a=1,b=2\tk\tv\n\tk\tw\n")
    said = server.run("consume", topic, "--partition", "1", "--format", "{attributes}\\t{key}\\t{value}").lines()
    assert said == ["a=1,b=2\tk\tv", "\tk\tw"]
    assert "line 1: attributes are b'a'" in server.run("produce", topic, *separators, stdin="a\tk\tv\n").refused(1)
    assert "cannot read" in server.run("produce", topic, str(tmp_path / "none")).refused(2)
    assert "directory" in server.run("produce", topic, str(tmp_path)).refused(2)


def test_some_messages_of_several_topics(server: Server, topic: str) -> None:
    other = f"{topic}-other"
    server.run("topic", "create", other)
    for name in (topic, other):
        server.run("produce", name, "--partition", "0", "--key-separator", ":", stdin="a:1\nb:2\na:3\nb:4\n")
    assert server.run("consume", topic, other, "--format", "{topic} {value}", "--key", "a").lines() == [
        f"{topic} 1",
        f"{topic} 3",
        f"{other} 1",
        f"{other} 3",
    ]
    assert server.run("consume", topic, "--grep", "^[24]$", "--max", "1").lines() == ["2"]
    assert server.run("consume", topic, "--from", "1", "--to", "3").lines() == ["2", "3"]
    assert server.run("consume", topic, "--from", "-3", "--to", "-1").lines() == ["2", "3"]
    assert json.loads(server.run("consume", topic, other, "--json").lines()[-1])["topic"] == other
    # A group has read what was looked at, also where it did not match.
    assert server.run("consume", topic, other, "--group", "g", "--key", "b").lines() == ["2", "4"] * 2
    assert server.run("group", "describe", other, "g", "--json").json()["lag_messages"] == 0
    assert "--to cannot be combined" in server.run("consume", topic, "--to", "1", "--follow").refused(2)
    assert "regular expression" in server.run("consume", topic, "--grep", "(").refused(2)

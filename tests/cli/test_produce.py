"""`headrace produce`: lines in, messages out, each once."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from tests.cli.processes import PATIENCE_SECONDS, Running, Server, eventually, headrace
from tests.ports import ReservedPort


def messages(server: Server, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.run("consume", topic, "--json").lines()]


def values(server: Server, topic: str) -> list[str]:
    return sorted(message["value"] for message in messages(server, topic))


def test_every_line_is_a_message(server: Server, topic: str) -> None:
    done = server.run("produce", topic, stdin="one\n\nthree\nwithout an end")
    assert done.lines() == [f"{topic}: 4 of 4 lines written"]
    assert values(server, topic) == ["", "one", "three", "without an end"]


def test_nothing_comes_to_nothing(server: Server, topic: str) -> None:
    assert server.run("produce", topic, stdin="").lines() == [f"{topic}: 0 of 0 lines written"]


def test_keys(server: Server, topic: str) -> None:
    server.run("produce", topic, "--key-separator", ": ", stdin="a: 1: 2\nno key\n: empty key\n")
    found = {message["value"]: message.get("key") for message in messages(server, topic)}
    assert found == {"1: 2": "a", "no key": None, "empty key": ""}


def test_a_tab_may_be_written_as_people_write_it(server: Server, topic: str) -> None:
    server.run("produce", topic, "--key-separator", "\\t", stdin="a\tb\n")
    assert [(message["key"], message["value"]) for message in messages(server, topic)] == [("a", "b")]


def test_bytes_that_are_no_text(server: Server, topic: str) -> None:
    server.run("produce", topic, stdin=b"\xff\x00\xfe\n")
    assert messages(server, topic)[0]["encoding"] == "base64"


def test_another_file_with_the_same_producer_id_is_written_too(server: Server, topic: str) -> None:
    arguments = ("produce", topic, "--producer-id", "till-7")
    assert server.run(*arguments, stdin="monday 1\nmonday 2\n").lines() == [f"{topic}: 2 of 2 lines written"]
    assert server.run(*arguments, stdin="tuesday 1\n").lines() == [f"{topic}: 1 of 1 lines written"]
    assert values(server, topic) == ["monday 1", "monday 2", "tuesday 1"]
    assert sorted(message["seqno"] for message in messages(server, topic)) == [1, 2, 3]


def test_lines_are_not_dropped_when_another_writes_with_the_same_id(server: Server, topic: str) -> None:
    source, sink = os.pipe()
    arguments = ("produce", topic, "--producer-id", "till-7")
    with Running(*arguments, stdin=source, variables={"HEADRACE_URL": server.flight_url}) as producer:
        os.close(source)
        os.write(sink, b"first\n")
        eventually(lambda: values(server, topic) == ["first"])
        server.run(*arguments, stdin="of another\n")
        os.write(sink, b"second\n")
        os.close(sink)
        assert producer.wait() == 1
        assert "producer 'till-7'" in producer.err and "was fenced" in producer.err
        assert producer.err.endswith("(1 of 1 lines written)\n")


def test_a_file_that_is_sent_again_is_written_once(server: Server, topic: str) -> None:
    lines = [f"line {number}" for number in range(25)]
    arguments = (
        "produce",
        topic,
        "--producer-id",
        "till-7",
        "--resume",
        "monday",
        "--batch",
        "10",
        "--json",
        "--input",
        "text",
    )
    first = server.run(*arguments, stdin="\n".join(lines[:15]) + "\n").json()
    assert (first["written"], first["duplicates"]) == (15, 0)
    again = server.run(*arguments, stdin="\n".join(lines) + "\n").json()
    assert (again["written"], again["duplicates"]) == (10, 15)
    assert values(server, topic) == sorted(lines)
    told = server.run("produce", topic, "--producer-id", "till-7", "--resume", "monday", stdin="x\n")
    assert told.out == f"{topic}: 0 of 1 lines written, 1 already written\n"
    assert "all 1 lines were already written by till-7 as monday: nothing is new" in told.err
    assert told.code == 6
    changed = server.run(*arguments, stdin="\n".join([*lines[:-1], "changed"]) + "\n")
    assert (changed.code, json.loads(changed.out)["conflicts"]) == (1, 1)
    assert "1 lines differ from what till-7 wrote as monday with their number" in changed.err
    other = server.run("produce", topic, "--producer-id", "till-7", "--resume", "tuesday", stdin="x\n")
    assert other.lines() == [f"{topic}: 1 of 1 lines written"]


def test_payloads_that_the_topic_has_already_are_no_failure(server: Server, topic: str) -> None:
    server.run("topic", "alter", topic, "--deduplication", "payload")
    assert server.run("produce", topic, stdin="a\nb\n").lines() == [f"{topic}: 2 of 2 lines written"]
    again = server.run("produce", topic, stdin="a\nb\n")
    assert (again.code, again.out, again.err) == (0, f"{topic}: 0 of 2 lines written, 2 already written\n", "")


def test_a_chosen_partition(server: Server, topic: str) -> None:
    server.run("produce", topic, "--partition", "1", stdin="a\nb\n")
    assert {message["partition"] for message in messages(server, topic)} == {1}
    assert "this topic has partitions 0 to 1" in server.run("produce", topic, "--partition", "7", stdin="a\n").refused(
        1
    )


def test_attributes_and_a_codec(server: Server, topic: str) -> None:
    options = ("--attribute", "kind=sale", "--attribute", "shop=a=b", "--codec", "zstd", "--key-separator", ":")
    assert server.run("produce", topic, *options, stdin="k:one\n").code == 0
    (message,) = messages(server, topic)
    assert (message["key"], message["value"]) == ("k", "one")
    assert message["attributes"] == {"kind": "sale", "shop": "a=b"}
    stored = json.loads(server.run("consume", topic, "--json", "--no-decode").out)
    assert stored["codec"] == "zstd" and stored["encoding"] == "base64"


def test_a_line_that_is_refused_is_named(server: Server, topic: str) -> None:
    server.run("topic", "alter", topic, "--message-bytes-max", "10")
    line = server.run("produce", topic, "--batch", "2", stdin="a\nb\nc\nmuch too long for it\n").refused(1)
    assert line.startswith("line 4: ") and line.endswith("(2 of 2 lines written)"), line


def test_a_codec_for_messages_that_have_one(server: Server, topic: str) -> None:
    coded = '{"value": "", "codec": "gzip"}\n' * 2
    line = server.run("produce", topic, "--input", "json", "--codec", "zstd", stdin=coded).refused(2)
    assert line.startswith("--codec is 'zstd': the messages of lines 1 to 2 have a codec already"), line


def test_wrong_usage(server: Server) -> None:
    assert "--key-separator is empty" in server.run("produce", "x", "--key-separator", "").refused(2)
    assert "--producer-id" in server.run("produce", "x", "--producer-id", "").refused(2)
    assert "--resume needs --producer-id" in server.run("produce", "x", "--resume", "monday").refused(2)
    assert "--resume is empty:" in server.run("produce", "x", "--producer-id", "p", "--resume", "").refused(2)
    assert "does not exist" in server.run("produce", "nowhere", stdin="a\n").refused(1)
    assert "does not exist" in server.run("produce", "nowhere").refused(1), "also without any lines"
    assert "--batch" in server.run("produce", "x", "--batch", "0").refused(2)
    assert "--attribute is 'kind'" in server.run("produce", "x", "--attribute", "kind").refused(2)
    assert "--codec is 'brotli'" in server.run("produce", "x", "--codec", "brotli").refused(2)


def test_lines_are_sent_while_more_may_come(server: Server, topic: str) -> None:
    source, sink = os.pipe()
    with Running("produce", topic, stdin=source, variables={"HEADRACE_URL": server.flight_url}) as producer:
        os.close(source)
        os.write(sink, b"first\nhalf a l")
        eventually(lambda: values(server, topic) == ["first"])
        os.write(sink, b"ine\n")
        eventually(lambda: values(server, topic) == ["first", "half a line"])
        os.close(sink)
        assert producer.wait() == 0


def test_without_a_server() -> None:
    for url in ("headrace://127.0.0.1:1", "http://127.0.0.1:1"):
        line = headrace("produce", "x", "--url", url, stdin="a\n").refused(3)
        assert f"no server at {url}" in line and "headrace serve" in line


def test_a_server_that_is_away_for_a_while(tmp_path: Path) -> None:
    with ReservedPort() as port:
        address = ("--flight", f"127.0.0.1:{port.number}")
        with Server(tmp_path / "store", *address) as first:
            first.run("topic", "create", "orders")
            first.stop()
        results = []
        arguments = ("produce", "orders", "--producer-id", "p", "--retry-seconds", "60", "--url", first.flight_url)
        thread = threading.Thread(target=lambda: results.append(headrace(*arguments, stdin="a\nb\n")))
        thread.start()
        # Most often the first attempt fails by now.
        time.sleep(0.3)
        with Server(tmp_path / "store", *address) as second:
            thread.join(PATIENCE_SECONDS)
            assert results[0].lines() == ["orders: 2 of 2 lines written"]
            assert values(second, "orders") == ["a", "b"]

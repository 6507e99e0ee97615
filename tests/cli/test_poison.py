"""Values that do not fit their codec, printed by `headrace consume`; see tests/poison.py."""

from __future__ import annotations

import json

import pytest

from headrace.client import connect
from tests import poison
from tests.cli.processes import Server, headrace


@pytest.fixture
def url(server: Server) -> str:
    return server.flight_url


@pytest.fixture
def poisoned(server: Server, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    with connect(server.flight_url) as client:
        client.create_topic(name)
        with client.producer(name) as producer:
            producer.send_batch(poison.batch())
    return name


def text(values: list[bytes]) -> str:
    return "".join(value.decode() + "\n" for value in values)


def test_what_comes_before_is_printed_and_the_error_names_the_message(url: str, poisoned: str) -> None:
    done = headrace("consume", poisoned, "--url", url)
    assert done.out == text(poison.BEFORE)
    assert done.code == 1
    assert f"the message at offset {poison.BAD[0]} of partition 0 of topic '{poisoned}'" in done.err
    assert done.err.count("\n") == 1


def test_they_are_skipped_or_printed_raw_if_asked_for(url: str, poisoned: str) -> None:
    done = headrace("consume", poisoned, "--url", url, "--on-undecodable", "skip")
    assert (done.code, done.out) == (0, text(poison.VALUES))
    assert f"{len(poison.BAD)} messages were skipped" in done.err
    raw = headrace("consume", poisoned, "--url", url, "--on-undecodable", "raw", "--json")
    found = [json.loads(line) for line in raw.lines()]
    assert [message["offset"] for message in found] == list(range(len(poison.ROWS)))
    assert [message.get("codec") for message in found] == poison.raw_codecs()
    assert "--on-undecodable is 'drop': it must be 'raise', 'raw' or 'skip'" in headrace(
        "consume", poisoned, "--on-undecodable", "drop"
    ).refused(2)


def test_a_group_commits_what_was_printed_and_what_was_skipped(server: Server, url: str, poisoned: str) -> None:
    arguments = ("consume", poisoned, "--url", url, "--group", "billing")
    assert headrace(*arguments).out == text(poison.BEFORE)
    again = headrace(*arguments)
    assert again.out == ""
    assert f"offset {poison.BAD[0]}" in again.refused(1)
    with connect(server.flight_url) as client:
        assert client.committed(poisoned, "billing") == {0: poison.BAD[0]}
        rest = headrace(*arguments, "--on-undecodable", "skip")
        assert rest.out == text(poison.VALUES[len(poison.BEFORE) :])
        assert client.describe_group(poisoned, "billing").lag_messages == 0

"""Requests and answers with few elements and many bytes: nothing of them is read or written on the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.protocols.kafka import connection
from headrace.protocols.kafka.apis.call import LOOP_REQUEST_BYTES_MAX
from headrace.protocols.kafka.messages.reader import TEXT_BYTES_MAX
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

FIND_COORDINATOR, METADATA = 10, 3
EVENT_LOOP = "headrace-kafka"


def called_by(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """The names of the threads that call a function of the connection."""
    threads: list[str] = []
    original: Any = getattr(connection, name)

    def call(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return original(*args)

    monkeypatch.setattr(connection, name, call)
    return threads


def test_long_names_are_read_and_written_in_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, writers = called_by(monkeypatch, "read_request"), called_by(monkeypatch, "_encoded")
    names = [
        f"{number:03}{'x' * (TEXT_BYTES_MAX - 3)}" for number in range(LOOP_REQUEST_BYTES_MAX // TEXT_BYTES_MAX + 1)
    ]
    with RawClient(site.port) as client:
        for keys in (names[:2], names):
            answer = client.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys)
            assert [each.key for each in answer.coordinators] == keys
    assert readers[0] == writers[0] == EVENT_LOOP
    assert EVENT_LOOP not in (readers[1], writers[1])


def test_a_large_request_is_cut_from_those_behind_it(site: Site) -> None:
    """A large one is not copied: it takes the buffer, of which it gives back what is not its own."""
    large = ["y" * TEXT_BYTES_MAX] * (LOOP_REQUEST_BYTES_MAX // TEXT_BYTES_MAX + 2)
    site.broker.create_topic("behind", 3)
    with RawClient(site.port) as client:
        requests = [
            client.encoded(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=large),
            client.encoded(METADATA, 9, topics=[{"name": "behind"}]),
            client.encoded(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=large),
            client.encoded(METADATA, 9, topics=[{"name": "behind"}]),
        ]
        client.send(b"".join(requests))
        for _ in range(2):
            assert [each.key for each in client.answer().coordinators] == large[:1]
            assert len(client.answer().topics[0].partitions) == 3

"""Serving Flight beside HTTP: the address on the ready line, tokens, a port that is taken, none at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import connect
from headrace.core.errors import Unauthenticated
from tests.cli.processes import Server, headrace


def flight_url(server: Server) -> str:
    found = re.search(r"headrace://\S+", server.ready)
    assert found is not None, server.ready
    return found.group()


def test_what_is_published_over_flight_is_read_over_http(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        with connect(flight_url(server)) as client:
            client.create_topic("orders")
            with client.producer("orders") as producer:
                assert producer.send(b"sale").result().offset == 0
        assert server.run("consume", "orders").lines() == ["sale"]


def test_a_flight_port_that_is_taken_ends_with_one_line(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        taken = flight_url(server).removeprefix("headrace://")
        other = ("--store", f"file:{tmp_path}/other", "--http", "127.0.0.1:0")
        line = headrace("serve", *other, "--flight", taken).refused(2)
        assert taken in line and "--flight" in line


def test_flight_can_be_left_out(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--flight", "off") as server:
        assert "headrace://" not in server.ready


def test_flight_asks_for_the_same_tokens_as_http(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        store = f"file:{tmp_path}/store"
        made = headrace("token", "create", "reader", "--read", "*", "--store", store, "--json").json()
        with connect(flight_url(server), token=made["token"]) as client:
            assert client.list_topics() == []
        with pytest.raises(Unauthenticated), connect(flight_url(server), token="hr_000000000000_wrong") as client:
            client.list_topics()

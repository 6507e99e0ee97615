"""The list of servers: one that knows itself, several that share a store, and a store that does not answer."""

from __future__ import annotations

import logging
from importlib.metadata import version

import pytest

from headrace.broker import Broker
from headrace.core.errors import StoreUnavailable
from tests.broker.sites import Site

HTTP = "http://10.0.0.5:7070"


def test_a_broker_without_an_address_is_no_server(broker: Broker) -> None:
    broker.servers.beat()
    assert broker.list_servers() == []


def test_a_server_is_listed_with_its_addresses_until_it_stops(broker: Broker) -> None:
    broker.servers.advertise({"http": HTTP})
    broker.servers.advertise({"console": "http://10.0.0.5:7072"})
    (listed,) = broker.list_servers()
    assert listed.addresses == {"http": HTTP, "console": "http://10.0.0.5:7072"}
    assert listed.version == version("headrace")
    assert listed.started_us <= listed.heartbeat_us
    assert broker.servers.address("console") == "http://10.0.0.5:7072"
    broker.servers.advertise({"console": None})
    assert broker.list_servers()[0].addresses == {"http": HTTP}
    assert broker.servers.address("console") is None
    broker.servers.leave()
    assert broker.list_servers() == []


def test_servers_of_one_store_list_each_other(shared_site: Site) -> None:
    first, second = shared_site.open(), shared_site.open()
    first.servers.advertise({"http": HTTP})
    second.servers.advertise({"http": "http://10.0.0.6:7070"})
    assert first.list_servers() == second.list_servers()
    assert len({each.id for each in first.list_servers()}) == 2
    first.close()
    assert [each.addresses["http"] for each in second.list_servers()] == ["http://10.0.0.6:7070"]


def test_a_store_that_does_not_answer_neither_stops_a_start_nor_a_stop(
    shared_site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = shared_site.open()
    rows = broker.store.catalog.servers

    def failed(*_: object) -> None:
        raise StoreUnavailable("the database", "gone")

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(rows, "put", failed)
        patched.setattr(rows, "remove", failed)
        broker.servers.advertise({"http": HTTP})
        assert "cannot add this server to the list of servers, will retry" in caplog.text
        assert broker.list_servers() == []
        broker.servers.leave()
        assert "it expires by itself" in caplog.text
    broker.servers.advertise({"http": HTTP})
    assert len(broker.list_servers()) == 1

"""The rows of servers that share a database: renewed, expired by the database's clock, removed."""

from __future__ import annotations

from headrace.core.limits import MICROSECONDS, SERVER_EXPIRY_SECONDS
from tests.storage.postgres.sites import Site

HTTP = {"http": "http://10.0.0.5:7070"}


def test_servers_see_each_other_in_the_order_they_started(site: Site) -> None:
    one, other = site.open().catalog.servers, site.open().catalog.servers
    one.put("first", "0.1", HTTP)
    other.put("second", "0.2", {"flight": "headrace://it's:7071"})
    assert [(each.id, each.version, each.addresses) for each in one.all()] == [
        ("first", "0.1", HTTP),
        ("second", "0.2", {"flight": "headrace://it's:7071"}),
    ]
    assert one.all() == other.all()
    one.remove("first")
    assert [each.id for each in other.all()] == ["second"]


def test_a_heartbeat_keeps_the_start_and_takes_new_addresses(site: Site) -> None:
    servers = site.open().catalog.servers
    servers.put("first", "0.1", HTTP)
    before = servers.all()[0]
    servers.put("first", "0.1", HTTP | {"console": "http://10.0.0.5:7072"})
    after = servers.all()[0]
    assert after.started_us == before.started_us <= before.heartbeat_us < after.heartbeat_us
    assert after.addresses["console"] == "http://10.0.0.5:7072"


def test_a_server_without_heartbeats_expires_and_its_row_is_removed(site: Site) -> None:
    servers = site.open().catalog.servers
    servers.put("dead", "0.1", HTTP)
    servers.put("alive", "0.1", HTTP)
    expired_us = int(SERVER_EXPIRY_SECONDS * MICROSECONDS) + MICROSECONDS
    site.do(f"UPDATE all_servers SET heartbeat_us = heartbeat_us - {expired_us} WHERE serverid = 'dead'")
    assert [each.id for each in servers.all()] == ["alive"]
    servers.put("alive", "0.1", HTTP)
    assert site.ask("SELECT serverid FROM all_servers") == [("alive",)]


def test_a_server_without_addresses_runs_and_is_not_listed(site: Site) -> None:
    servers = site.open().catalog.servers
    servers.put("listed", "0.1", HTTP)
    servers.put("hears members", "0.1", {})
    servers.put("dead", "0.1", {})
    expired_us = int(SERVER_EXPIRY_SECONDS * MICROSECONDS) + MICROSECONDS
    site.do(f"UPDATE all_servers SET heartbeat_us = heartbeat_us - {expired_us} WHERE serverid = 'dead'")
    assert [each.id for each in servers.all()] == ["listed"]
    assert servers.running() == {"listed", "hears members"}


def test_the_catalog_tells_the_time_of_the_database(site: Site) -> None:
    catalog = site.open().catalog
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    (before_us,), now_us, (after_us,) = site.ask(clock)[0], catalog.database_us(), site.ask(clock)[0]
    assert before_us <= now_us <= after_us

"""Who calls a server: told apart by what they say, and bounded however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaConsumer

from headrace.client import Client, connect
from headrace.core.reports.clients import IDENTITY_HEADER, ClientDescription, ClientIdentity, ClientMembership
from headrace.edge import audit
from headrace.edge.limits import Limits
from headrace.edge.monitoring import clients as limits
from headrace.edge.monitoring.clients import Clients
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.http.site import Site

SECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.us = 1_000 * SECOND

    def __call__(self) -> int:
        return self.us


def ids(clients: Clients) -> list[str]:
    return [each.identity.client_id for each in clients.list("s")]


def said(client_id: str) -> ClientIdentity:
    return ClientIdentity(client_id)


def test_calls_of_one_client_are_one_and_the_last_comes_first() -> None:
    clock = Clock()
    clients = Clients(clock)
    first = clients.saw("flight", "rita", "10.0.0.1", '{"client_id":"billing"}')
    clients.saw("http", "rita", "10.0.0.1", said("curl"))
    clock.us += SECOND
    assert clients.saw("flight", "rita", "10.0.0.1", '{"client_id":"billing"}') is first
    assert clients.saw("flight", "paul", "10.0.0.1", '{"client_id":"billing"}') is not first
    assert [(each.principal, each.seen_us - each.since_us) for each in clients.list("s")] == [
        ("rita", SECOND),
        ("paul", 0),
        ("rita", 0),
    ]


def test_a_client_is_forgotten_after_its_last_call_unless_it_is_connected() -> None:
    clock = Clock()
    clients = Clients(clock)
    clients.saw("http", "rita", "a", said("gone"))
    kept = clients.saw("kafka", "rita", "a", said("kept"))
    clients.connected(kept)
    clients.connected(kept)
    clock.us += int(limits.KEPT_SECONDS * SECOND) + 1
    assert ids(clients) == ["kept"]
    assert clients.list("s")[0].seen_us == clock.us, "it is connected now"
    clients.disconnected(kept)
    assert ids(clients) == ["kept"]
    clients.disconnected(kept)
    assert ids(clients) == []


def test_one_caller_pushes_out_its_own_clients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALLER_CLIENTS_MAX", 3)
    monkeypatch.setattr(limits, "CLIENTS_MAX", 5)
    clients = Clients()
    clients.saw("http", "paul", "a", said("paul's"))
    for number in range(10):
        clients.saw("http", "rita", "a", said(str(number)))
    assert sorted(ids(clients)) == ["7", "8", "9", "paul's"]
    for number in range(10):
        clients.saw("http", f"caller {number}", "a", said("new"))
    assert len(ids(clients)) == 5, "with too many callers the one with most of them goes first"


def test_what_a_client_does_is_bounded() -> None:
    client = Clients().saw("flight", "rita", "a", "")
    for number in range(limits.MEMBERS_MAX + 5):
        client.joined("orders", "billing", f"m{number}")
        client.publishes(f"t{number}", "")
    described = client.described("s")
    assert len(described.members) == limits.MEMBERS_MAX
    assert len(described.producers) == limits.PRODUCERS_MAX


def test_memberships_come_and_go() -> None:
    clock = Clock()
    client = Clients(clock).saw("flight", "rita", "a", "")
    client.joined("orders", "billing", "m", 2.0)
    client.joined("orders", "billing", "m")
    client.joined("returns", "billing", "m")
    polled = ClientMembership("orders", "billing", "m", clock.us - 2 * SECOND)
    assert client.described("s").members == [polled, ClientMembership("returns", "billing", "m", None)]
    client.left("billing", "m", "returns")
    assert client.described("s").members == [polled]
    client.left("billing", "m")
    assert client.described("s").members == []


def test_a_named_source_stands_for_the_topic() -> None:
    client = Clients().saw("flight", "rita", "a", "")
    for topic, producer_id in (("orders", ""), ("orders", "till"), ("returns", "")):
        client.publishes(topic, producer_id)
    assert [(each.topic, each.producer_id) for each in client.described("s").producers] == [
        ("orders", "till"),
        ("returns", ""),
    ]


# Over every protocol


class Servers:
    """HTTP, Flight and Kafka over one store."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.limits = Limits()
        self.site = stack.enter_context(Site(directory, limits=self.limits))
        self.site.broker.create_topic("orders")
        self.site.broker.publish("orders", pa.record_batch({"value": [b"m"]}))
        self.flight = FlightServer(self.site.broker, self.site.access, "grpc+tcp://127.0.0.1:0", limits=self.limits)
        stack.callback(self.flight.stop)
        listeners = sockets.bind("127.0.0.1", 0)
        self.kafka_port = sockets.port_of(listeners)
        self.kafka = KafkaServer(self.site.broker, self.site.access, KafkaSettings(), listeners, limits=self.limits)
        self.kafka.start()
        stack.callback(self.kafka.stop, 10.0)

    def client(self, client_id: str | None = None, token: str | None = None) -> Client:
        return connect(f"headrace://127.0.0.1:{self.flight.port}", token, client_id=client_id)

    def named(self, client_id: str) -> ClientDescription:
        with self.client("looker") as client:
            (found,) = (each for each in client.list_clients() if each.identity.client_id == client_id)
        return found


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path, stack)


def test_a_client_of_ours_is_known_by_name(servers: Servers) -> None:
    with servers.client("billing") as client:
        producer = client.producer("orders", producer_id="till-7")
        consumer = client.consumer("orders", "billing")
        consumer.poll(1, 0.0)
        found = servers.named("billing")
        assert (found.protocol, found.principal, found.address) == ("flight", "anyone", "127.0.0.1")
        assert found.identity.library == "headrace" and found.identity.pid and found.identity.host
        assert [each.producer_id for each in found.producers] == ["till-7"]
        assert [(each.topic, each.group) for each in found.members] == [("orders", "billing")]
        consumer.close()
        producer.close()
        assert servers.named("billing").members == []


def test_a_client_is_named_like_its_program(servers: Servers) -> None:
    with servers.client() as client:
        client.list_topics()
    with servers.client("looker") as client:
        assert {each.identity.client_id for each in client.list_clients()} > {"looker"}
        assert all(each.identity.client_id for each in client.list_clients())


def test_http_names_programs_and_members(servers: Servers) -> None:
    http = servers.site.client
    http.put("/v1/topics/orders/groups/billing/members/w", json={}, headers={"user-agent": "curl/8.5 (x)"})
    http.get("/v1/topics/orders", headers={IDENTITY_HEADER: '{"client_id":"till"}'})
    found = http.get("/v1/clients", headers={"user-agent": "curl/8.5 (x)"}).json()["clients"]
    by_library = {each["library"]: each for each in found}
    assert by_library["curl"]["version"] == "8.5"
    (member,) = by_library["curl"]["members"]
    assert (member["member"], member["polled_us"]) == ("w", None)
    assert "till" in {each["client_id"] for each in found}
    http.get("/v1/topics/orders/groups/billing/members/w/messages", headers={"user-agent": "curl/8.5 (x)"})
    (member,) = next(each for each in http.get("/v1/clients").json()["clients"] if each["library"] == "curl")["members"]
    assert member["polled_us"]
    http.delete("/v1/topics/orders/groups/billing/members/w", headers={"user-agent": "curl/8.5 (x)"})
    assert all(not each["members"] for each in http.get("/v1/clients").json()["clients"])


def test_a_kafka_client_is_known_while_it_is_connected(servers: Servers) -> None:
    server = f"127.0.0.1:{servers.kafka_port}"
    consumer = KafkaConsumer("orders", bootstrap_servers=server, group_id="books", client_id="till-9")
    while not consumer.assignment():
        consumer.poll(100)
    found = servers.named("till-9")
    assert found.protocol == "kafka" and "kafka" in found.identity.library
    assert [(each.topic, each.group) for each in found.members] == [("orders", "books")]
    consumer.close()
    with servers.client("looker") as client:
        while "till-9" in {each.identity.client_id for each in client.list_clients()}:
            pass


def test_the_audit_log_names_the_client(servers: Servers) -> None:
    with servers.client("an operator") as client:
        client.register_group("orders", "billing", important=True)
    entry = next(each for each in audit.recent(10) if each.get("client") == "an operator")
    assert entry["operation"] == "change_group" and entry["library"].startswith("headrace ") and ":" in entry["process"]

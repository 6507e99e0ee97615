"""What every client can do: groups whose members come and are killed, offsets at times, logins, exact producers."""

from __future__ import annotations

import multiprocessing
import ssl
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

import headrace
from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.ports import ReservedPort
from tests.protocols.kafka.clients.adapters import CLIENTS, PATIENCE_SECONDS, Login, Target
from tests.protocols.kafka.clients.member import MemberProcess
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.test_clients import until
from tests.server_process import ServerProcess

COUNT = 200
LATER_MS = 4_000_000_000_000
GROUPS = [(name, strategy) for name, client in CLIENTS.items() for strategy in client.strategies]


def nothing() -> None:
    """Nothing happens while messages are sent."""


def send(site: Site, topic: str, first: int) -> set[str]:
    """Write messages to the partitions in turn; their values."""
    values = [f"{number}" for number in range(first, first + COUNT)]
    site.broker.publish(topic, pa.RecordBatch.from_pydict({"value": pa.array([value.encode() for value in values])}))
    return set(values)


@pytest.mark.parametrize(("client", "strategy"), GROUPS)
def test_a_member_is_added_and_one_is_killed(site: Site, client: str, strategy: str) -> None:
    topic = f"members-{client}-{strategy}"
    site.broker.create_topic(topic, 4)
    first = MemberProcess(client, site.bootstrap, topic, topic, strategy)
    second = None
    try:
        until(lambda: len(first.partitions) == 4)
        sent = send(site, topic, 0)
        until(lambda: set(first.values) == sent)
        second = MemberProcess(client, site.bootstrap, topic, topic, strategy)
        until(lambda: sorted([*first.partitions, *second.partitions]) == [0, 1, 2, 3] and len(first.partitions) == 2)
        sent |= send(site, topic, COUNT)
        until(lambda: {*first.values, *second.values} == sent)
        first.kill()
        sent |= send(site, topic, 2 * COUNT)
        until(lambda: second.partitions == [0, 1, 2, 3] and {*first.values, *second.values} == sent)
        assert second.close() == 0
    finally:
        first.kill()
        if second is not None:
            second.kill()
    ends = {partition: end for partition, (_, end) in site.broker.offsets(topic).items()}
    assert site.broker.committed(topic, topic) == ends


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_at_a_time(site: Site, client: str) -> None:
    topic = f"times-{client}"
    site.broker.create_topic(topic)
    CLIENTS[client].produce(Target(site.bootstrap), topic, [b"a", b"b"], nothing)
    member = CLIENTS[client].member(Target(site.bootstrap), topic, topic)
    try:
        assert [member.offset_at(topic, time_ms) for time_ms in (0, LATER_MS)] == [0, None]
    finally:
        member.close()


def produce_in_halves(client: str, bootstrap: str, values: list[bytes], half: Event, go: Event) -> None:
    def meanwhile() -> None:
        half.set()
        go.wait()

    CLIENTS[client].produce(Target(bootstrap), "exact", values, meanwhile)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_exact_producer_beside_a_killed_server(client: str, tmp_path: Path) -> None:
    """Every message is there once and in order, although the server was killed in the middle.

    The producer has a process of its own: kafka-python does not close sockets that could not connect.
    """
    values = [b"%d" % number for number in range(2000)]
    processes = multiprocessing.get_context("spawn")
    with ReservedPort() as port:
        server = ServerProcess(f"file:{tmp_path}/store", "--kafka", f"127.0.0.1:{port.number}")
        half, go = processes.Event(), processes.Event()
        given = (client, f"127.0.0.1:{port.number}", values, half, go)
        producer = processes.Process(target=produce_in_halves, args=given)
        try:
            with headrace.connect(server.url) as native:
                native.create_topic("exact")
            producer.start()
            assert half.wait(PATIENCE_SECONDS)
            server.kill()
            go.set()
            server.start()
            producer.join()
            assert producer.exitcode == 0
            with headrace.connect(server.url) as native:
                found = native.read("exact", partition=0, offset=0, max_messages=10_000).column("value").to_pylist()
        finally:
            producer.kill()
            server.close()
    assert found == values


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """A server that asks for a token over TLS: its address, a token, and the authority of its certificate."""
    authority, directory = trustme.CA(), tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    listeners = sockets.bind("127.0.0.1", 0)
    address = f"localhost:{sockets.port_of(listeners)}"
    settings = KafkaSettings(advertised=address, rebalance_delay_seconds=0.05, heartbeat_seconds=0.1)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners, context):
        _, token = broker.access.create("all", [("*", ["publish", "read", "manage"])])
        yield address, token, str(directory / "ca.pem")


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_over_tls(guarded: tuple[str, str, str], client: str, mechanism: str) -> None:
    address, token, ca = guarded
    to, topic = Target(address, Login(token, mechanism, ca)), f"{client}-{mechanism}"
    CLIENTS[client].produce(to, topic, [b"one", b"two"], nothing)
    member = CLIENTS[client].member(to, topic, topic)
    values: list[bytes] = []
    try:
        while len(values) < 2:
            values += member.poll()
    finally:
        member.close()
    assert values == [b"one", b"two"]

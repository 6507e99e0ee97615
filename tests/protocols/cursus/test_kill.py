"""A real `headrace serve --cursus` that is killed while its Python client sends: nothing is lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from tests.broker.background import eventually
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer
from tests.protocols.cursus.raw import RawCursus, batch, records
from tests.protocols.cursus.site import consumer, producer
from tests.protocols.cursus.test_client import Handled
from tests.protocols.cursus.test_events import append
from tests.protocols.cursus.test_groups import Member
from tests.server_process import ServerProcess

PARTITIONS = 2
# Messages between two kills.
MESSAGES = 400


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.campaign)])
def test_an_idempotent_producer_writes_each_message_once(tmp_path: Path, kills: int) -> None:
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        server = ServerProcess(f"file:{tmp_path}/store", "--cursus", address)
        try:
            sent = 0
            with producer(address, "exact", partitions=PARTITIONS, idempotent=True, batch_size=50) as sending:
                for _ in range(kills):
                    before = sending.unique_ack_count
                    for _ in range(MESSAGES):
                        sending.send(str(sent))
                        sent += 1
                    # In the middle of its batches.
                    eventually(lambda before=before: sending.unique_ack_count > before)  # type: ignore[misc]
                    server.kill()
                    server.start()
            assert sending.unique_ack_count == sent
            with headrace.connect(server.url) as client:
                for partition in range(PARTITIONS):
                    rows = client.read("exact", partition, 0, sent)
                    numbers = [int(value) for value in rows.column("value").to_pylist()]
                    # Each partition in the order in which it was sent.
                    assert numbers == list(range(partition, sent, PARTITIONS))
        finally:
            server.close()


def test_a_consumer_goes_on_after_kills(tmp_path: Path) -> None:
    """Its membership outlives the server, and what it has not committed is handled again."""
    handled = Handled()
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        server = ServerProcess(f"file:{tmp_path}/store", "--cursus", address)
        try:
            with producer(address, "t", idempotent=True) as sending, consumer(address, "t", handled):
                for turn in range(3):
                    for number in range(100):
                        sending.send(str(turn * 100 + number))
                    eventually(lambda turn=turn: len(handled.payloads) > turn * 100)  # type: ignore[misc]
                    if turn < 2:
                        server.kill()
                        server.start()
                sending.flush()
                eventually(lambda: len(handled.payloads) == 300)
            with headrace.connect(server.url) as client:
                group = client.describe_group("t", "g")
            assert (group.members, group.lag_messages) == ({}, 0)
        finally:
            server.close()


def test_two_servers_share_numbers_and_groups(postgres: PostgresServer) -> None:
    """What is sent again to the other server is a duplicate there; members of both are in one group."""
    url = postgres.url(postgres.fresh_database())
    with ReservedPort() as one, ReservedPort() as two:
        servers = [ServerProcess(url, "--cursus", f"127.0.0.1:{port.number}") for port in (one, two)]
        try:
            with RawCursus(one.number) as first, RawCursus(two.number) as second:
                first.ask("CREATE topic=t partitions=2")
                body = batch("t", records(3), is_idempotent=True)
                assert [client.acknowledged(body)["last_offset"] for client in (first, second, first)] == [2, 2, 2]
                assert second.acknowledged(batch("t", records(5), is_idempotent=True))["last_offset"] == 4
                members = [Member(client, "t") for client in (first, second)]
                assert members[0].ask("HEARTBEAT").startswith("ERROR: GEN_MISMATCH")
                members[0].join()
                assert sorted(members[0].partitions + members[1].partitions) == [0, 1]
                first.ask("CREATE topic=es partitions=1 event_sourcing=true")
                answers = [append(client, "es", 1) for client in (first, second)]
                assert [answer.split()[0] for answer in answers] == ["OK", "ERROR:"]
        finally:
            for server in servers:
                server.close()

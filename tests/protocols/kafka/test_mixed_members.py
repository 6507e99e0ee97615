"""One group, two protocols, two servers on one PostgreSQL: each message once, or the second kind is refused."""

from __future__ import annotations

import pytest

import headrace
from headrace.core.errors import GroupSizeConflict
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer
from tests.protocols.kafka.test_clients import Member, until
from tests.server_process import ServerProcess

COUNT = 1_000


def test_a_group_has_members_of_one_kind_on_all_servers(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.fresh_database())
    with ReservedPort() as one:
        kafka = ServerProcess(url, "--kafka", f"127.0.0.1:{one.number}")
        native = ServerProcess(url)
        try:
            with headrace.connect(native.url) as client:
                client.create_topic("orders", partitions=4)
                member = Member(f"127.0.0.1:{one.number}", "billing", ["orders"])
                with client.producer("orders") as producer:
                    producer.send(b"first").result()
                until(lambda: member.values == [b"first"])
                with pytest.raises(GroupSizeConflict, match="Kafka members, at server"):
                    client.consumer("orders", group="billing")
                with client.producer("orders") as producer:
                    for number in range(COUNT):
                        producer.send(b"%d" % number, key=b"%d" % number)
                until(lambda: len(member.values) == COUNT + 1)
                assert len(set(member.values)) == COUNT + 1
                member.close()
                until(lambda: _may_join(client))
                with client.consumer("orders", group="billing") as consumer:
                    assert consumer.poll(timeout=0).num_rows == 0
        finally:
            native.close()
            kafka.close()


def _may_join(client: headrace.Client) -> bool:
    try:
        client.consumer("orders", group="billing").close()
    except GroupSizeConflict:
        return False
    return True

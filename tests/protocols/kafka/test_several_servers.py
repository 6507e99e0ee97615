"""Two real servers on one PostgreSQL: clients see both, and go on when one is killed."""

from __future__ import annotations

import confluent_kafka as confluent
from confluent_kafka.admin import AdminClient

import headrace
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer
from tests.protocols.kafka.test_clients import Member, until
from tests.server_process import ServerProcess

PATIENCE_SECONDS = 120.0
COUNT = 100


def produced(bootstrap: str, first: int) -> None:
    # Idempotent, since it may send again what the killed server did not answer.
    producer = confluent.Producer(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "enable.idempotence": True}
    )
    for number in range(first, first + COUNT):
        producer.produce("shared", b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0


def leaders(admin: AdminClient) -> int:
    """How many servers the partitions are spread over."""
    found = admin.list_topics("shared", timeout=PATIENCE_SECONDS).topics["shared"]
    return len({each.leader for each in found.partitions.values()})


def test_clients_go_on_when_a_server_is_killed(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.fresh_database())
    with ReservedPort() as one, ReservedPort() as two:
        bootstrap = f"127.0.0.1:{one.number},127.0.0.1:{two.number}"
        first = ServerProcess(url, "--kafka", f"127.0.0.1:{one.number}")
        second = ServerProcess(url, "--kafka", f"127.0.0.1:{two.number}")
        try:
            with headrace.connect(second.url) as client:
                client.create_topic("shared", partitions=32)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            # Each server learns of the other by itself, and either may be asked.
            until(lambda: leaders(admin) == 2)
            member = Member(bootstrap, "readers", ["shared"], **{"session.timeout.ms": 6_000})
            produced(bootstrap, 0)
            until(lambda: len(set(member.values)) == COUNT)
            first.kill()
            produced(bootstrap, COUNT)
            until(lambda: len(set(member.values)) == 2 * COUNT)
            member.close()
            with headrace.connect(second.url) as client:
                until(lambda: sum(client.committed("shared", "readers").values()) == 2 * COUNT)
                assert sum(end for _, end in client.offsets("shared").values()) == 2 * COUNT
        finally:
            second.close()
            first.close()

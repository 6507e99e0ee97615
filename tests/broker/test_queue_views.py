"""What the PgQueue design reads with SQL: the next message of a consumer, and how many are left."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from headrace.broker import Broker
from headrace.broker.queue_api.registrations import CONSUMER_PREFIX
from tests.broker.messages import batch
from tests.postgres_server import PostgresServer

NEXT_OFFSET = "SELECT queueoffset FROM queue_consumers WHERE consumerid = %s AND topicname = 'Orders'"
NEXT_MESSAGE = "SELECT message FROM orders WHERE messageid = %s"
SIZE = "SELECT count(*) FROM orders WHERE messageid >= %s"
MESSAGES = 10


def ask(connection: psycopg.Connection, query: LiteralString, *values: object) -> object:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_next_message_of_a_consumer_is_found_by_its_number(postgres: PostgresServer, partitions: int) -> None:
    url = postgres.fresh_url()
    with Broker.open(url) as broker, postgres.connect() as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(url.rpartition("schema=")[2])))
        broker.create_topic("Orders", partitions)
        for each in range(MESSAGES):
            broker.publish("orders", batch(b"%d" % each))
        registered = broker.registrations
        first, second = (registered.register_consumer("Orders") for _ in range(2))
        for expected in range(MESSAGES):
            number = ask(connection, NEXT_OFFSET, first)
            assert number == expected
            message = ask(connection, NEXT_MESSAGE, number)
            assert ask(connection, SIZE, number) == registered.size("Orders", first)
            taken = registered.consume("Orders", first)
            assert taken is not None and taken.value is not None and message == taken.value.decode()
        assert ask(connection, NEXT_OFFSET, first) == MESSAGES and ask(connection, NEXT_MESSAGE, MESSAGES) is None
        assert ask(connection, NEXT_OFFSET, second) == 0
        assert ask(connection, "SELECT count(DISTINCT messageid) FROM orders") == MESSAGES
        plan = connection.execute("EXPLAIN SELECT message FROM orders WHERE partition = 0").fetchall()
        assert not any("WindowAgg" in line for (line,) in plan), "who does not ask for numbers does not wait for them"
        broker.delete_topic("Orders")
        assert ask(connection, "SELECT count(*) FROM queue_consumers") == 0


def test_the_view_knows_what_groups_of_consumers_are_called() -> None:
    assert CONSUMER_PREFIX == "queue-consumer-"

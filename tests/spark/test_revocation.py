"""Streams whose token is revoked while they run: they fail soon, and continue with a good one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.rights import Right
from headrace.protocols.flight.server import FlightServer
from tests.spark.starting import PatientQuery
from tests.spark.topics import numbers, publish, read_fast, read_stream, values_of, wait_until

# A retry does not help, so nothing is waited for but Spark's own tries of a task.
FAILS_WITHIN_SECONDS = 60.0
pytestmark = pytest.mark.timeout(900.0)


class Place:
    """A broker that admits only tokens: one to read, one to publish, and one that may do everything."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.url = f"headrace://127.0.0.1:{port}"
        _, self.root = broker.access.create("root", [("*", list(Right))])
        self.records = {}
        self.tokens = {}
        for right, topic in (("read", "orders"), ("publish", "copied")):
            self.records[right], self.tokens[right] = broker.access.create(f"to-{right}", [(topic, [right])])

    def start(
        self, spark: SparkSession, way: Callable[..., DataFrame], tokens: dict[str, str], directory: Path
    ) -> PatientQuery:
        rows = way(spark, self.url, "orders", token=tokens["read"], startingOffsets="earliest")
        writing = rows.select("key", "value").writeStream.format("headrace")
        options = {"url": self.url, "topic": "copied", "token": tokens["publish"]}
        return PatientQuery(writing.options(**options, checkpointLocation=str(directory / "cp")).start)


@pytest.fixture
def place() -> Iterator[Place]:
    with Broker.open("memory:") as broker:
        server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        yield Place(broker, server.port)
        assert server.stop(60.0)


@pytest.fixture
def root(place: Place) -> Iterator[Client]:
    with connect(place.url, token=place.root, timeout_seconds=60.0) as client:
        client.create_topic("orders", partitions=2)
        client.create_topic("copied")
        yield client


def failure_of(query: PatientQuery) -> str:
    """The error that ends a query, which must come in time."""
    deadline = time.monotonic() + FAILS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            query.goes_on()
        except Exception as error:
            return str(error)
        time.sleep(0.1)
    raise AssertionError("the query goes on with a token that is not valid")


@pytest.mark.parametrize("way", [read_stream, read_fast])
@pytest.mark.parametrize("right", ["read", "publish"])
def test_a_revoked_token_ends_a_stream_that_continues_with_another(
    spark: SparkSession, place: Place, root: Client, tmp_path: Path, right: str, way: Callable[..., DataFrame]
) -> None:
    publish(root, "orders", numbers(0, 50))
    query = place.start(spark, way, place.tokens, tmp_path)
    try:
        wait_until(lambda: query.goes_on() and len(values_of(root, "copied")) == 50, "the first fifty are there")
        assert root.revoke_token(place.records[right].id)
        publish(root, "orders", numbers(50, 100))
        assert "the token is unknown or revoked" in failure_of(query)
    finally:
        query.stop()
    other = place.tokens["publish" if right == "read" else "read"]
    query = place.start(spark, way, {**place.tokens, right: other}, tmp_path)
    try:
        assert f"has no right to {right} " in failure_of(query)
    finally:
        query.stop()
    query = place.start(spark, way, {**place.tokens, right: place.root}, tmp_path)
    try:
        wait_until(lambda: query.goes_on() and len(values_of(root, "copied")) >= 100, "the others are there too")
    finally:
        query.stop()
    assert sorted(values_of(root, "copied"), key=int) == numbers(0, 100)

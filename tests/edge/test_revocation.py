"""What runs when its token is revoked, expires or loses its right: streams of Flight and long polls of HTTP end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.client import connect
from headrace.core.errors import Unauthenticated
from headrace.core.rights import Right
from headrace.protocols.flight.server import FlightServer
from headrace.wire import operations as wire
from headrace.wire import tickets
from tests.protocols.http.site import Site, path_of, problem

PATIENCE_SECONDS = 60.0


class Place:
    """Both servers over one store, and a token that is about to be revoked."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory)
        self.broker, self.access = self.site.broker, self.site.access
        self.broker.create_topic("t")
        self.flight = FlightServer(self.broker, self.access, "grpc+tcp://127.0.0.1:0")
        self.access.create("root", [("*", list(Right))])
        self.record, self.text = self.access.create("short-lived", [("*", list(Right))])
        self.caller = flight.FlightClient(f"grpc+tcp://127.0.0.1:{self.flight.port}")
        headers = [(b"authorization", f"Bearer {self.text}".encode())]
        self.options = flight.FlightCallOptions(headers=headers)

    def get(self, ticket: tickets.Reading) -> flight.FlightStreamReader:
        return self.caller.do_get(flight.Ticket(tickets.encode(ticket)), self.options)

    def revoke(self) -> None:
        assert self.access.revoke(self.record.id)

    def close(self) -> None:
        self.caller.close()
        assert self.flight.stop(PATIENCE_SECONDS)
        self.site.__exit__(None, None, None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("ticket", [tickets.Read("t", 0, 0, follow=True), tickets.Follow("t", {0: 0})], ids=repr)
def test_a_flight_reader_ends(place: Place, ticket: tickets.Reading) -> None:
    place.broker.publish("t", pa.record_batch({"value": [b"before"]}))
    stream = place.get(ticket)
    assert stream.read_chunk().data.column("value").to_pylist() == [b"before"]
    place.revoke()
    place.broker.publish("t", pa.record_batch({"value": [b"after"]}))
    with pytest.raises(flight.FlightUnauthenticatedError):
        stream.read_chunk()


def test_an_idle_flight_reader_ends(place: Place) -> None:
    stream = place.get(tickets.Follow("t", {0: 0}))
    place.revoke()
    with pytest.raises(flight.FlightUnauthenticatedError):
        stream.read_chunk()


def test_a_flight_reader_ends_when_its_token_loses_the_right(place: Place) -> None:
    _, text = place.access.create("reader", [("t", ["read"])])
    headers = [(b"authorization", f"Bearer {text}".encode())]
    options = flight.FlightCallOptions(headers=headers)
    stream = place.caller.do_get(flight.Ticket(tickets.encode(tickets.Follow("t", {0: 0}))), options)
    place.access.rotate("reader", keep_seconds=0)
    with pytest.raises(flight.FlightUnauthenticatedError, match="expired"):
        stream.read_chunk()


def test_a_flight_publisher_ends_and_nothing_more_is_written(place: Place) -> None:
    batch = pa.record_batch({"value": [b"a"]})
    descriptor = flight.FlightDescriptor.for_command(tickets.encode(tickets.Publish("t")))
    writer, reader = place.caller.do_put(descriptor, batch.schema, place.options)
    writer.write_batch(batch)
    assert reader.read() is not None
    place.revoke()
    # The answer that nobody asked for is the error, though nothing is sent meanwhile.
    assert b"unauthenticated" in bytes(reader.read())
    with pytest.raises(flight.FlightUnauthenticatedError):
        while True:
            writer.write_batch(batch)
            if reader.read() is None:
                writer.close()
    assert place.broker.offsets("t") == {0: (0, 1)}


def test_a_stage_takes_nothing_more(place: Place) -> None:
    batch = pa.record_batch({"value": [b"a"]})
    descriptor = flight.FlightDescriptor.for_command(tickets.encode(tickets.Stage("t", "s")))
    writer, _ = place.caller.do_put(descriptor, batch.schema, place.options)
    writer.write_batch(batch)
    place.revoke()
    with pytest.raises(flight.FlightUnauthenticatedError):
        while True:
            writer.write_batch(batch)
            threading.Event().wait(0.01)


def test_a_wait_for_offsets_over_flight_ends_with_an_error(place: Place) -> None:
    def wait() -> None:
        body = wire.encode(wire.AwaitOffsets("t", {0: 0}, 300.0))
        list(place.caller.do_action(flight.Action("await_offsets", body), place.options))

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        _until(lambda: place.broker.reader("t") is not None)
        place.revoke()
        with pytest.raises(flight.FlightUnauthenticatedError):
            waiting.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("is_member", [False, True], ids=["a partition", "a member"])
@pytest.mark.parametrize("publishes", [False, True], ids=["idle", "with a message"])
def test_a_long_poll_ends(place: Place, is_member: bool, publishes: bool) -> None:
    client = place.site.new_client(place.text)
    if is_member:
        members = path_of("topics", "t", "groups", "g", "members", "m")
        assert client.put(members, json={}).status_code == 200
        path, query = f"{members}/messages", {"wait_seconds": 300}
    else:
        path, query = path_of("topics", "t", "partitions", "0", "messages"), {"offset": 0, "wait_seconds": 300}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.get, path, params=query)
        _until(lambda: _is_watched(place))
        place.revoke()
        if publishes:
            # Later than the server needs to know, as in the report of this fault.
            threading.Event().wait(1.5)
            place.broker.publish("t", pa.record_batch({"value": [b"secret"]}))
        answer = waiting.result(PATIENCE_SECONDS)
    problem(answer, 401, "unauthenticated")
    assert "secret" not in answer.text


def test_an_idle_subscription_ends_before_its_next_heartbeat(place: Place) -> None:
    client = place.site.new_client(place.text)
    with client.stream("GET", path_of("topics", "t", "events")) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        place.revoke()
        # Heartbeats come every fifteen seconds, and are comments.
        ended = [line for line in lines if line]
    assert ended[1] == "event: end" and "unauthenticated" in ended[2]


def test_the_client_raises_what_the_server_said(place: Place) -> None:
    url = f"headrace://127.0.0.1:{place.flight.port}"
    with connect(url, place.text) as client, client.consumer("t", group="g") as consumer:
        place.revoke()
        with pytest.raises(Unauthenticated):
            while True:
                consumer.poll(timeout=0.1)


def _is_watched(place: Place) -> bool:
    return any(topic_metrics.waiting_readers for topic_metrics in place.broker.topic_metrics())


def _until(condition: Any) -> None:
    for _ in range(int(PATIENCE_SECONDS * 100)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to be")

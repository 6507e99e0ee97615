"""Uploads that have only begun: each holds a thread from its headers on, so each has a place from its headers on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.broker import Broker
from headrace.core.errors import Closed, HeadraceError, LimitExceeded, Unauthenticated
from headrace.edge.access import Gate
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.flight import access
from headrace.protocols.flight.server import FlightServer
from headrace.wire import tickets
from headrace.wire.answers import decode_answer
from headrace.wire.errors import decode_error
from tests.broker.background import eventually
from tests.edge.raw_http2 import RawCall

UPLOADS = 3
DO_PUT = "/arrow.flight.protocol.FlightService/DoPut"
SCHEMA = pa.schema([("value", pa.binary())])
Upload = tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]


class Place:
    def __init__(self, broker: Broker) -> None:
        self.limits = Limits(LimitSettings(flight_calls_max=16 * UPLOADS))
        self.broker = broker
        made = {name: broker.access.create(name, [("t", ["publish"])]) for name in ("greedy", "modest")}
        self.tokens = {name: text for name, (_, text) in made.items()}
        self.ids = {name: record.id for name, (record, _) in made.items()}
        self.server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0", limits=self.limits)

    def begin(self, name: str | None) -> RawCall:
        """The headers of an upload, and no message."""
        headers = [] if name is None else [(b"authorization", f"Bearer {self.tokens[name]}".encode())]
        return RawCall(self.server.port, DO_PUT, *headers)

    def upload(self, client: flight.FlightClient, name: str | None) -> Upload:
        """An upload without a batch."""
        headers = [] if name is None else [(b"authorization", f"Bearer {self.tokens[name]}".encode())]
        command = flight.FlightDescriptor.for_command(tickets.encode(tickets.Publish("t")))
        options = flight.FlightCallOptions(timeout=60.0, headers=headers)
        writer, reader = client.do_put(command, SCHEMA, options)
        return writer, reader

    def held(self) -> dict[str, int]:
        return dict(self.limits.flight_uploads._held)


@pytest.fixture
def place() -> Iterator[Place]:
    with Broker.open("memory:") as broker:
        broker.create_topic("t")
        place = Place(broker)
        yield place
        assert place.server.stop(60.0)


@pytest.fixture
def client(place: Place) -> Iterator[flight.FlightClient]:
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{place.server.port}") as client:
        yield client


def error_of(begin: Callable[[], Upload]) -> HeadraceError | None:
    """Of an upload that is refused: its first message is sent or not by then."""
    with pytest.raises(flight.FlightError) as raised:
        writer, reader = begin()
        while reader.read() is not None:
            pass
        writer.close()
    return decode_error(raised.value.extra_info)


def publish(upload: Upload) -> None:
    writer, reader = upload
    writer.write_batch(pa.record_batch({"value": [b"a"]}))
    assert isinstance(decode_answer(reader.read()), pa.RecordBatch)
    writer.close()


def test_an_upload_has_a_place_from_its_headers_on(place: Place, client: flight.FlightClient) -> None:
    with ExitStack() as open_:
        for _ in range(UPLOADS + 1):
            open_.enter_context(place.begin("greedy"))
        eventually(lambda: place.limits.limited() == {("greedy", "limits.flight_calls_max"): 1})
        assert place.held() == {"greedy": UPLOADS}
        error = error_of(lambda: place.upload(client, "greedy"))
        assert isinstance(error, LimitExceeded)
        assert "at its limit of 3 Flight uploads (1/16 of limits.flight_calls_max)" in str(error)
        publish(place.upload(client, "modest"))
    eventually(lambda: not place.held())
    publish(place.upload(client, "greedy"))


def test_strangers_have_few_uploads_together(place: Place, client: flight.FlightClient) -> None:
    with ExitStack() as open_:
        for _ in range(UPLOADS + 5):
            open_.enter_context(place.begin(None))
        eventually(lambda: place.held() == {access.STRANGERS: UPLOADS})
        assert isinstance(error_of(lambda: place.upload(client, None)), Unauthenticated)
        publish(place.upload(client, "modest"))
    eventually(lambda: not place.held())


def test_an_upload_with_a_certificate_alone_that_is_one_too_many_may_come_again(place: Place) -> None:
    middleware = access.AccessMiddleware(Gate(place.broker.access, place.limits), True, None)
    info = SimpleNamespace(method=flight.FlightMethod.DO_PUT)
    begun = [middleware.start_call(info, {}) for _ in range(UPLOADS)]
    with pytest.raises(flight.FlightUnavailableError) as raised:
        middleware.start_call(info, {})
    assert isinstance(decode_error(raised.value.extra_info), LimitExceeded)
    with pytest.raises(flight.FlightUnauthenticatedError):
        middleware.start_call(info, {"authorization": ["Bearer wrong"]})
    begun.pop().call_completed(None)
    middleware.start_call(info, {})


def test_uploads_without_a_batch_have_one_thread_together(place: Place, client: flight.FlightClient) -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("headrace-flight-")]

    waiting = [place.upload(client, "greedy") for _ in range(UPLOADS)]
    eventually(lambda: threads() == ["headrace-flight-waiting"])
    place.broker.access.revoke(place.ids["greedy"])
    for writer, reader in waiting:
        assert isinstance(decode_answer(reader.read()), Unauthenticated)
        with pytest.raises(flight.FlightUnauthenticatedError):
            writer.close()
    eventually(lambda: threads() == [] and not place.held())


def test_an_upload_without_a_batch_ends_with_the_server(place: Place, client: flight.FlightClient) -> None:
    writer, reader = place.upload(client, "modest")
    eventually(lambda: place.held() == {"modest": 1})
    place.server.stopping.set()
    assert isinstance(decode_answer(reader.read()), Closed)
    with pytest.raises(flight.FlightError):
        writer.close()

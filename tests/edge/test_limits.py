"""Limits per token over real sockets: whoever is at its limit is told so, and the others notice nothing of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.broker import BrokerSettings
from headrace.client import connect
from headrace.core.errors import HeadraceError, LimitExceeded, Overloaded, QuotaExceeded
from headrace.core.rights import Right
from headrace.edge import limits as edge_limits
from headrace.edge.limits import OTHERS, Limits, Rate, Slots
from headrace.edge.settings import LimitSettings
from headrace.protocols.flight.server import FlightServer
from headrace.wire import operations as wire
from headrace.wire import tickets
from headrace.wire.errors import decode_error
from tests.broker.background import eventually
from tests.protocols.http.site import PATIENCE_SECONDS, Site, checked, path_of, problem

EVENTS = path_of("topics", "t", "events")
MESSAGES = path_of("topics", "t", "messages")
FETCH = path_of("topics", "t", "partitions", 0, "messages")
WAITING = {"offset": 0, "wait_seconds": 300}


class Place:
    """Both servers over one store, with two tokens, each with a client of both protocols."""

    def __init__(self, directory: Path, limits: Limits, broker_settings: BrokerSettings | None = None) -> None:
        self.limits = limits
        self.site = Site(directory, limits=limits, broker_settings=broker_settings)
        self.broker, access = self.site.broker, self.site.access
        self.broker.create_topic("t")
        self.flight = FlightServer(self.broker, access, "grpc+tcp://127.0.0.1:0", limits=limits)
        self.tokens = {name: access.create(name, [("*", list(Right))])[1] for name in ("greedy", "modest")}
        self.http = {name: self.site.new_client(token) for name, token in self.tokens.items()}
        self.caller = flight.FlightClient(f"grpc+tcp://127.0.0.1:{self.flight.port}")

    def options(self, name: str) -> flight.FlightCallOptions:
        headers = [(b"authorization", f"Bearer {self.tokens[name]}".encode())]
        return flight.FlightCallOptions(headers=headers, timeout=PATIENCE_SECONDS)

    def act(self, name: str, operation: wire.Operation[Any]) -> Any:
        action = flight.Action(str(operation.__struct_config__.tag), wire.encode(operation))
        (answer,) = self.caller.do_action(action, self.options(name))
        return wire.decode_answer(operation, answer.body.to_pybytes())

    def follow(self, name: str) -> flight.FlightStreamReader:
        """A follow stream that has begun: its first message is here."""
        ticket = flight.Ticket(tickets.encode(tickets.Follow("t", {0: 0})))
        stream = self.caller.do_get(ticket, self.options(name))
        stream.read_chunk()
        return stream

    def put(self, name: str, command: tickets.Upload) -> tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]:
        descriptor = flight.FlightDescriptor.for_command(tickets.encode(command))
        writer, reader = self.caller.do_put(descriptor, pa.schema([("value", pa.binary())]), self.options(name))
        return writer, reader

    def publish_everywhere(self, name: str) -> None:
        """A token can publish over both protocols, and call."""
        assert checked(self.http[name].post(MESSAGES, json={"messages": [{"value": "a"}]}), 200)
        url = f"headrace://127.0.0.1:{self.flight.port}"
        with connect(url, token=self.tokens[name]) as client, client.producer("t") as producer:
            producer.send(b"a").result(PATIENCE_SECONDS)
        assert self.act(name, wire.ListTopics("*")) == ["t"]

    def close(self) -> None:
        self.caller.close()
        assert self.flight.stop(PATIENCE_SECONDS)
        self.site.__exit__(None, None, None)


@contextmanager
def placed(
    directory: Path, settings: LimitSettings | None = None, broker_settings: BrokerSettings | None = None
) -> Iterator[Place]:
    place = Place(directory, Limits(settings), broker_settings)
    try:
        yield place
    finally:
        place.close()


def refused(call: Callable[[], Any], kind: type[HeadraceError] = LimitExceeded) -> HeadraceError:
    """The error that a Flight call carries; the client may try again later."""
    with pytest.raises(flight.FlightError) as raised:
        call()
    assert isinstance(raised.value, flight.FlightUnavailableError) == (kind is not QuotaExceeded)
    error = decode_error(raised.value.extra_info)
    assert isinstance(error, kind)
    return error


def too_many(answer: httpx.Response, setting: str) -> dict[str, Any]:
    """The fields of a 429 that says when to come back."""
    told = problem(answer, 429, "limit_exceeded")
    assert told["retry"] and int(answer.headers["retry-after"]) >= 1
    assert told["fields"]["setting"] == setting and told["fields"]["principal"] == "greedy"
    return dict(told["fields"])


# Streams and long polls


@pytest.mark.parametrize("kind", ["events", "fetch", "member"])
def test_http_streams_and_long_polls_are_bounded_by_token(tmp_path: Path, kind: str) -> None:
    with placed(tmp_path, LimitSettings(streams_max=2)) as place, ThreadPoolExecutor(2) as threads:
        client, members = place.http["greedy"], path_of("topics", "t", "groups", "g", "members", "m")
        assert client.put(members, json={}).status_code == 200
        path, query = {
            "events": (EVENTS, {}),
            "fetch": (FETCH, WAITING),
            "member": (f"{members}/messages", {"wait_seconds": 300}),
        }[kind]
        polls = [threads.submit(_read_one, client, path, query) for _ in range(2)]
        eventually(lambda: place.limits.streams.total == 2)
        fields = too_many(client.get(path, params=query), "limits.streams_max")
        assert fields["limit"] == 2
        # What does not wait is no stream.
        assert client.get(FETCH, params={"offset": 0}).status_code == 200
        place.publish_everywhere("modest")
        assert [poll.result(PATIENCE_SECONDS) for poll in polls] == [200, 200]
        eventually(lambda: place.limits.streams.total == 0)
        assert client.get(FETCH, params=WAITING).status_code == 200


def _read_one(client: httpx.Client, path: str, query: dict[str, Any]) -> int:
    """Wait for a message."""
    with client.stream("GET", path, params=query) as answer:
        for line in answer.iter_lines():
            if "messages" in line:
                break
        return answer.status_code


def test_followers_of_one_token_do_not_stop_anyone_from_publishing(tmp_path: Path) -> None:
    with placed(tmp_path, LimitSettings(flight_calls_max=16)) as place:
        place.broker.publish("t", pa.record_batch({"value": [b"first"]}))
        streams = [place.follow("greedy") for _ in range(4)]
        error = refused(lambda: place.follow("greedy"))
        assert "at its limit of 4 Flight streams (1/4 of limits.flight_calls_max)" in str(error)
        # It may still publish and call itself, and so may all others, who follow as well.
        place.publish_everywhere("greedy")
        place.publish_everywhere("modest")
        streams.append(place.follow("modest"))
        for stream in streams:
            stream.cancel()
        eventually(lambda: place.flight.streams_open == 0)
        place.follow("greedy").cancel()


def test_publishing_goes_on_where_all_followers_together_are_too_many(tmp_path: Path) -> None:
    with placed(tmp_path, LimitSettings(flight_calls_max=1)) as place:
        place.broker.publish("t", pa.record_batch({"value": [b"first"]}))
        stream = place.follow("greedy")
        refused(lambda: place.follow("modest"), Overloaded)
        place.publish_everywhere("modest")
        stream.cancel()


def test_waits_for_offsets_are_bounded_by_token(tmp_path: Path) -> None:
    with placed(tmp_path, LimitSettings(flight_calls_max=32)) as place, ThreadPoolExecutor(8) as threads:
        waiting = wire.AwaitOffsets("t", {0: 0}, 300.0)
        waits = [threads.submit(place.act, "greedy", waiting) for _ in range(8)]
        eventually(lambda: place.limits.flight_streams.total == 8)
        for _ in range(100):
            refused(lambda: place.act("greedy", waiting))
        # A look that does not wait holds nothing.
        assert place.act("greedy", wire.AwaitOffsets("t", {0: 0}, 0.0)) == {0: (0, 0)}
        assert place.limits.limited()["greedy", "limits.flight_calls_max"] == 100
        place.publish_everywhere("modest")
        assert all(wait.result(PATIENCE_SECONDS)[0][1] >= 1 for wait in waits)


def test_http_and_flight_share_the_limit_of_streams(tmp_path: Path) -> None:
    with placed(tmp_path, LimitSettings(streams_max=1)) as place:
        place.broker.publish("t", pa.record_batch({"value": [b"first"]}))
        stream = place.follow("greedy")
        too_many(place.http["greedy"].get(EVENTS), "limits.streams_max")
        stream.cancel()
        eventually(lambda: place.limits.streams.total == 0)
        with place.http["greedy"].stream("GET", EVENTS) as answer:
            assert answer.status_code == 200
            assert refused(lambda: place.follow("greedy")).details()["setting"] == "limits.streams_max"


def test_uploads_are_bounded_by_token(tmp_path: Path) -> None:
    batch = pa.record_batch({"value": [b"a"]})
    with placed(tmp_path, LimitSettings(flight_calls_max=4)) as place, ExitStack():
        writer, reader = place.put("greedy", tickets.Publish("t"))
        writer.write_batch(batch)
        assert reader.read() is not None

        def publish_more() -> None:
            more, answers = place.put("greedy", tickets.Publish("t"))
            more.write_batch(batch)
            more.done_writing()
            while answers.read() is not None:
                pass
            more.close()

        refused(publish_more)
        place.publish_everywhere("modest")
        writer.close()
        eventually(lambda: place.limits.flight_uploads.total == 0)
        publish_more()


def test_short_calls_are_bounded_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with placed(tmp_path, LimitSettings(flight_calls_max=4)) as place, ThreadPoolExecutor(1) as threads:
        going, original = threading.Event(), place.broker.describe_topic

        def describe(name: str) -> Any:
            assert going.wait(PATIENCE_SECONDS)
            return original(name)

        monkeypatch.setattr(place.broker, "describe_topic", describe)
        slow: Future[Any] = threads.submit(place.act, "greedy", wire.DescribeTopic("t"))
        eventually(lambda: place.limits.flight_calls.total == 1)
        path = flight.FlightDescriptor.for_path("t")
        for call in (
            lambda: place.act("greedy", wire.ListTopics("*")),
            lambda: place.caller.get_flight_info(path, place.options("greedy")),
            lambda: list(place.caller.list_flights(b"", place.options("greedy"))),
        ):
            refused(call)
        assert place.act("modest", wire.ListTopics("*")) == ["t"]
        going.set()
        assert slow.result(PATIENCE_SECONDS).name == "t"


# Bytes

# A token has half of it.
SMALL_BODIES = LimitSettings(request_bytes_max=1_000, requests_bytes_max=2_000)


def test_bodies_under_way_are_bounded_by_token(tmp_path: Path) -> None:
    with placed(tmp_path, SMALL_BODIES) as place, ThreadPoolExecutor(1) as threads:
        more, body = threading.Event(), b'{"messages": [{"value": "' + b"a" * 700 + b'"}]}'
        client, head = place.http["greedy"], {"content-type": "application/json"}

        def slowly() -> Iterator[bytes]:
            yield body[:600]
            assert more.wait(PATIENCE_SECONDS)
            yield body[600:]

        slow = threads.submit(
            client.post, MESSAGES, content=slowly(), headers={**head, "content-length": str(len(body))}
        )
        eventually(lambda: place.limits.bodies.total == len(body))
        too_many(client.post(MESSAGES, content=body, headers=head), "limits.requests_bytes_max")
        # Without a size in advance it is counted as it comes.
        too_many(client.post(MESSAGES, content=iter([body]), headers=head), "limits.requests_bytes_max")
        place.publish_everywhere("modest")
        more.set()
        assert slow.result(PATIENCE_SECONDS).status_code == 200
        eventually(lambda: place.limits.bodies.total == 0)
        # Larger than the limit is possible, alone.
        large = body.replace(b"aa", b"aaaa")
        assert client.post(MESSAGES, content=large, headers=head).status_code == 200
        assert client.post(MESSAGES, content=iter([large[:900], large[900:]]), headers=head).status_code == 200


@pytest.mark.parametrize("command", [tickets.Publish("t"), tickets.Stage("t", "s")], ids=["publish", "stage"])
def test_uploads_wait_for_room_for_their_bytes(tmp_path: Path, command: tickets.Upload) -> None:
    with placed(tmp_path, SMALL_BODIES) as place, place.limits.bodies.taken("greedy", 999):
        writer, reader = place.put("greedy", command)
        writer.write_batch(pa.record_batch({"value": [b"a" * 100]}))
        writer.done_writing()
        eventually(lambda: ("greedy", "limits.requests_bytes_max") in place.limits.limited())
        place.publish_everywhere("modest")
        place.limits.bodies.give_back("greedy", 998)
        assert reader.read() is not None
        writer.close()
        place.limits.bodies.take("greedy", 998)
    assert place.limits.bodies.total == 0


def test_a_stream_that_waits_for_room_does_not_outlive_the_server(tmp_path: Path) -> None:
    place = Place(tmp_path, Limits(LimitSettings(request_bytes_max=1, requests_bytes_max=2)))
    place.limits.bodies.take("greedy", 1)
    # Kept: letting go of a writer waits for the server.
    streams = [place.put("greedy", command) for command in (tickets.Publish("t"), tickets.Stage("t", "s"))]
    for writer, _ in streams:
        writer.write_batch(pa.record_batch({"value": [b"a"]}))
    eventually(lambda: place.limits.limited().get(("greedy", "limits.requests_bytes_max")) == 2)
    # Asserts that the server ended in time.
    place.close()
    assert place.limits.bodies.total == 1


# Rates


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_per_second(tmp_path: Path) -> None:
    clock = Clock()
    place = Place(tmp_path, Limits(LimitSettings(requests_per_second=4), clock))
    try:
        client = place.http["greedy"]
        for _ in range(4):
            assert client.get("/v1/topics").status_code == 200
        too_many(client.get("/v1/topics"), "limits.requests_per_second")
        refused(lambda: place.act("greedy", wire.ListTopics("*")))
        assert client.get("/health/live").status_code == 200
        assert place.http["modest"].get("/v1/topics").status_code == 200
        clock.now += 0.5
        assert place.act("greedy", wire.ListTopics("*")) == ["t"]
        # The queue API answers in its own form.
        for _ in range(3):
            answer = client.post("/producer/register", json={"topic": "t"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["status"] == "failure"
    finally:
        clock.now = math.inf
        place.close()


def test_bytes_published_per_second_over_http(tmp_path: Path) -> None:
    clock = Clock()
    place = Place(tmp_path, Limits(LimitSettings(publish_bytes_per_second=100), clock))
    try:
        client, body = place.http["greedy"], {"messages": [{"value": "a" * 500}]}
        assert client.post(MESSAGES, json=body).status_code == 200
        answer = client.post(MESSAGES, json=body)
        fields = too_many(answer, "limits.publish_bytes_per_second")
        # The debt is paid off at the rate.
        assert 4 <= fields["retry_after_seconds"] < 6 and answer.headers["retry-after"] == "5"
        # Other requests are not concerned, nor are other tokens.
        assert client.put(path_of("topics", "t", "groups", "g"), json={}).status_code in (200, 201)
        assert place.http["modest"].post(MESSAGES, json=body).status_code == 200
        clock.now += fields["retry_after_seconds"]
        assert client.post(MESSAGES, json=body).status_code == 200
        assert place.broker.offsets("t") == {0: (0, 3)}
    finally:
        place.close()


def test_streams_over_flight_are_slowed_down(tmp_path: Path) -> None:
    clock = Clock()
    place = Place(tmp_path, Limits(LimitSettings(publish_bytes_per_second=100), clock))
    try:
        batch = pa.record_batch({"value": [b"a" * 500]})
        writer, reader = place.put("greedy", tickets.Publish("t"))
        for _ in range(2):
            writer.write_batch(batch)
        assert reader.read() is not None
        eventually(lambda: ("greedy", "limits.publish_bytes_per_second") in place.limits.limited())
        assert place.broker.offsets("t") == {0: (0, 1)}
        clock.now += 60
        assert reader.read() is not None
        assert place.broker.offsets("t") == {0: (0, 2)}
        writer.close()
    finally:
        place.close()


# What the store may have


def test_what_a_store_may_have_is_refused_over_both_protocols(tmp_path: Path) -> None:
    most = BrokerSettings(topics_max=1, partitions_max=2, groups_per_topic_max=1, members_per_group_max=1)
    with placed(tmp_path, broker_settings=most) as place:
        client, groups = place.http["greedy"], path_of("topics", "t", "groups", "g")
        assert client.put(f"{groups}/members/one", json={}).status_code == 200
        answers = [
            client.post("/v1/topics", json={"name": "u"}),
            client.put(path_of("topics", "u"), json={}),
            client.patch(path_of("topics", "t"), json={"partitions": 3}),
            client.put(path_of("topics", "t", "groups", "h"), json={}),
            client.put(f"{groups}/members/two", json={}),
        ]
        for answer in answers:
            # Waiting does not help, so nobody is told to.
            assert not problem(answer, 429, "quota_exceeded")["retry"]
            assert "retry-after" not in answer.headers
        for operation in (
            wire.CreateTopic("u", 1),
            wire.AlterTopic("t", 3),
            wire.RegisterGroup("t", "h"),
            wire.JoinGroup("t", "g", "two"),
        ):
            refused(partial(place.act, "greedy", operation), QuotaExceeded)
        assert client.post("/producer/register", json={"topic": "u"}).status_code == 429
        assert place.broker.list_topics() == ["t"]
        counted = place.limits.limited()
        names = ("topics_max", "partitions_max", "groups_per_topic_max", "members_per_group_max")
        assert [counted["greedy", f"broker.{name}"] for name in names] == [4, 2, 2, 2]


# Metrics


def test_metrics_show_who_is_limited(tmp_path: Path) -> None:
    with placed(tmp_path, LimitSettings(streams_max=1)) as place:
        with place.http["greedy"].stream("GET", EVENTS):
            for _ in range(2):
                too_many(place.http["greedy"].get(EVENTS), "limits.streams_max")
        text = place.http["modest"].get("/metrics").text
    assert 'headrace_limited_total{principal="greedy",limit="limits.streams_max"} 2\n' in text
    assert 'headrace_flight_calls{kind="upload"} 0\n' in text
    assert "modest" not in text


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_limits, "SERIES_MAX", 2)
    limits = Limits()
    for name in ("a", "b", "c", "d", "a"):
        limits.count_refusal(name, "x")
    assert limits.limited() == {("a", "x"): 2, ("b", "x"): 1, (OTHERS, "x"): 2}


# The parts alone


def test_slots_forget_callers_that_have_nothing() -> None:
    told: list[tuple[str, str]] = []
    slots = Slots("things", "s", 2, lambda *what: told.append(what), 3)
    for name in ("a", "a", "b"):
        slots.take(name)
    with pytest.raises(LimitExceeded, match="'a' is at its limit of 2 things"):
        slots.take("a")
    with pytest.raises(Overloaded, match=r"number of things \(s\)"):
        slots.take("b")
    assert told == [("a", "s"), ("b", "s")]
    assert not slots.wait("a", 1, lambda: True)
    for name in ("a", "a", "b"):
        slots.give_back(name)
    slots.take("c", 0)
    assert (slots.total, slots._held) == (0, {})


def test_a_rate_saves_up_for_a_second_and_forgets_the_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_limits, "CALLERS_MAX", 2)
    clock = Clock()
    rate = Rate("things", "s", 10, lambda *_: None, clock)
    rate.take("a", 30)
    assert rate.seconds_until_free("a") == pytest.approx(2.0, abs=0.01)
    clock.now += 60
    rate.take("a", 10)
    with pytest.raises(LimitExceeded):
        rate.check("a")
    clock.now += 0.5
    rate.take("b", 1)
    clock.now += 0.2
    rate.take("c", 1)
    assert set(rate._left) == {"a", "c"}
    rate.wait("b", lambda: True)
    assert Rate("things", "s", 0, lambda *_: None).seconds_until_free("a") == 0.0

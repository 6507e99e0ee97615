"""The rights matrix: every operation of every protocol, called with every kind of token, against the one table.

A new route, action, ticket or Flight method without a row in the table fails here, and so does a row that nothing uses.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

import httpx
import msgspec
import pyarrow as pa
import pytest
from litestar.routes import HTTPRoute
from pyarrow import flight

from headrace.broker import Broker
from headrace.client import connect
from headrace.core.errors import CommitConflict, Forbidden, StageNotFound
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets
from headrace.core.reports.pipelines import PipelineReport
from headrace.core.rights import Right
from headrace.edge.operations import OPERATIONS
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http import server as sockets
from headrace.protocols.http.app import make_litestar
from headrace.protocols.http.settings import HttpSettings
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.wire import operations as wire
from headrace.wire import tickets
from tests.protocols.http.site import Site
from tests.protocols.kafka.raw import RawClient

Outcome = Literal["admitted", "forbidden", "unauthenticated"]

GROUP, PRODUCER = "billing", "till-7"
_ALL: Final = frozenset(Right)
_COUNTER = itertools.count(1)
_ONE: Final = pa.record_batch({"value": [b"a"]})
_PARTS: Final = [(name, topic) for name in ("publish_staged", "commit") for topic in ("mine-known", "other-known")]
_CONSUMER_ID = 10_000_000_010
_OFFSET_COMMIT, _SASL_HANDSHAKE, _SASL_AUTHENTICATE, _GROUP_DENIED = 8, 17, 36, 30


@dataclass(frozen=True)
class Token:
    """A kind of token, and what is true of it."""

    name: str
    topics: str = "mine-*"
    rights: frozenset[Right] = _ALL
    groups: tuple[str, ...] = ("*",)
    producers: tuple[str, ...] = ("*",)
    forward_only: bool = False
    is_known: bool = True
    text: str | None = field(default=None, compare=False)

    def outcome(self, operation: str, is_on_topic: bool, group: str, is_owned: bool = False) -> Outcome:
        """What the table says about it, worked out in the plainest way; the producer id may be another token's."""
        need = OPERATIONS[operation]
        if need.is_public:
            return "admitted"
        if not self.is_known:
            return "unauthenticated"
        if need.any_right:
            return "admitted" if self.topics in ("*", "mine-*") else "forbidden"
        if need.full_access:
            is_unlimited = self.groups == self.producers == ("*",)
            return "admitted" if self.topics == "*" and self.rights == _ALL and is_unlimited else "forbidden"
        if need.right is None:
            return "admitted"
        is_mine = self.topics in ("*", "mine-*") if is_on_topic else self.topics == "*"
        is_group_mine = self.groups == ("*",) or (need.for_group and self.groups == (group,))
        needs_group = need.for_group or need.right == Right.MANAGE
        is_producer_mine = not need.for_producer or self.producers in (("*",), ("till-7*",))
        if is_owned and need.for_producer and need.right == Right.PUBLISH:
            is_producer_mine = self.name == "admin" or self.producers == ("till-7*",)
        if need.moves_back and self.forward_only and Right.MANAGE not in self.rights:
            return "forbidden"
        is_enough = is_mine and (is_group_mine or not needs_group) and is_producer_mine and need.right in self.rights
        return "admitted" if is_enough else "forbidden"


TOKENS: Final = [
    Token("none", is_known=False),
    Token("wrong", is_known=False),
    Token("revoked", is_known=False),
    Token("expired", is_known=False),
    Token("admin", "*"),
    Token("everything here"),
    *(Token(f"only {right}", rights=frozenset({right})) for right in Right),
    *(Token(f"all but {right}", rights=_ALL - {right}) for right in Right),
    Token("other topic", "other-*"),
    Token("own group", groups=(GROUP,)),
    Token("other group", groups=("audit",)),
    Token("a queue consumer", groups=(f"queue-consumer-{_CONSUMER_ID}",)),
    Token("forward only", rights=frozenset({Right.READ}), forward_only=True),
    Token("forward only, and manage", forward_only=True),
    Token("own producer", producers=("till-7*",)),
    Token("other producer", producers=("till-8*",)),
]


class Servers:
    """HTTP and Flight over one store, and a text for every kind of token."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory)
        self.flight = FlightServer(self.site.broker, self.site.access, "grpc+tcp://127.0.0.1:0")
        self.caller = flight.FlightClient(f"grpc+tcp://127.0.0.1:{self.flight.port}")
        self.http = self.site.new_client()
        listeners = sockets.bind("127.0.0.1", 0)
        self.kafka_port = sockets.port_of(listeners)
        self.kafka = KafkaServer(self.site.broker, self.site.access, KafkaSettings(), listeners)
        self.kafka.start()
        access = self.site.access
        access.create("root", [("*", list(Right))])
        self.texts: dict[str, str | None] = {"none": None, "wrong": "hr_0123456789ab_wrong"}
        for token in TOKENS:
            if token.name not in self.texts:
                grants = [(token.topics, list(token.rights))]
                record, self.texts[token.name] = access.create(
                    token.name, grants, token.groups, token.producers, 1, token.forward_only
                )
                self._end({} if token.name == "expired" else {record.id: None})
                if token.name == "revoked":
                    access.revoke(record.id)
        access.create("owner", [("mine-owned-*", [Right.PUBLISH])], producers=[PRODUCER])
        # The one that lives a second is over.
        self._end({record.id: 1 for record in access.list() if record.name == "expired"})

    def _end(self, ends: dict[str, int | None]) -> None:
        with self.site.broker.store.catalog._transactions._engine.begin() as connection:
            for token_id, end_us in ends.items():
                connection.exec_driver_sql("UPDATE all_tokens SET expires_us = ? WHERE tokenid = ?", (end_us, token_id))
        self.site.access.forget()

    def headers(self, token: Token) -> dict[str, str]:
        text = self.texts[token.name]
        return {} if text is None else {"authorization": f"Bearer {text}"}

    def options(self, token: Token) -> flight.FlightCallOptions:
        pairs = [(name.encode(), value.encode()) for name, value in self.headers(token).items()]
        return flight.FlightCallOptions(headers=pairs, timeout=60.0)

    def close(self) -> None:
        self.caller.close()
        assert self.flight.stop(60.0) and self.kafka.stop(60.0)
        self.site.__exit__(None, None, None)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory.mktemp("matrix"))
    yield running
    running.close()


@dataclass(frozen=True)
class Call:
    """A way to call an operation: it is given the name of a topic that is not there yet."""

    shown: str
    operation: str
    make: Callable[[Servers, Token, str], Outcome]
    is_on_topic: bool = True
    group: str = GROUP


# HTTP


def _http_outcome(answer: httpx.Response) -> Outcome:
    if answer.status_code == 401:
        return "unauthenticated"
    return "forbidden" if answer.status_code == 403 else "admitted"


def _http(method: str, path: str, operation: str, body: dict[str, Any] | None = None, shown: str = "") -> Call:
    def make(servers: Servers, token: Token, topic: str) -> Outcome:
        filled = path
        for place, value in (
            ("{topic:str}", topic),
            ("{group:str}", GROUP),
            ("{member:str}", "m"),
            ("{pipeline:str}", "land"),
            ("{producer:str}", PRODUCER),
            ("{writer:str}", PRODUCER),
            ("{partition:int}", "0"),
            ("{path:str}", "x"),
        ):
            filled = filled.replace(place, quote(value, safe=""))
        content = None if body is None else {name: topic if value == "TOPIC" else value for name, value in body.items()}
        with servers.http.stream(method, filled, json=content, headers=servers.headers(token)) as answer:
            return _http_outcome(answer)

    is_on_topic = "{topic" in path or "TOPIC" in (body or {}).values()
    # A consumer of the queue API is a group whose name the server gives.
    group = f"queue-consumer-{_CONSUMER_ID}" if "consumer_id" in (body or {}) else GROUP
    if path == "/consumer/register":
        group = "queue-consumer-*"
    return Call(shown or f"{method} {path}", operation, make, is_on_topic, group)


_BODIES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("POST", "/v1/topics"): {"name": "TOPIC"},
    ("PUT", "/v1/topics/{topic:str}/groups/{group:str}"): {},
    ("POST", "/v1/topics/{topic:str}/messages"): {"messages": [{"value": "a", "producer_id": PRODUCER}]},
    ("POST", "/topics"): {"name": "TOPIC"},
    ("POST", "/consumer/register"): {"topic": "TOPIC"},
    ("POST", "/producer/produce"): {"topic": "TOPIC", "producer_id": 1, "message": "a"},
    ("GET", "/consumer/consume"): {"topic": "TOPIC", "consumer_id": _CONSUMER_ID},
    ("GET", "/size"): {"topic": "TOPIC", "consumer_id": _CONSUMER_ID},
}


def _routes() -> list[tuple[str, str, str | None]]:
    with Broker.open("memory:") as broker:
        app = make_litestar(broker, broker.access, HttpSettings())
        return [
            (method, route.path, handler.opt.get("operation"))
            for route in app.routes
            if isinstance(route, HTTPRoute)
            for method, (handler, _) in sorted(route.route_handler_map.items(), key=lambda entry: entry[0])
            # The framework adds OPTIONS, which says nothing and is denied.
            if method != "OPTIONS"
        ]


ROUTES: Final = _routes()


def _http_calls() -> Iterator[Call]:
    for method, path, operation in ROUTES:
        if (method, path) not in (("POST", "/producer/register"), ("POST", "/consumer/set_offset")):
            yield _http(method, path, operation or "missing", _BODIES.get((method, path)))
    group = "/v1/topics/{topic:str}/groups/{group:str}"
    for body in ({"important": True}, {"important": False}, {"consumers": 2}):
        yield _http("PUT", group, "change_group", body, f"PUT {group} with {body}")
    # The topic is made if it is not there, and it never is.
    yield _http("POST", "/producer/register", "create_topic", {"topic": "TOPIC"})
    yield Call("POST /producer/register of a topic that is there", "register_producer", _register_producer)
    yield Call("POST /consumer/set_offset", "set_offset", _set_offset, group="queue-consumer-another")


def _register_producer(servers: Servers, token: Token, topic: str) -> Outcome:
    servers.site.broker.create_topic(topic)
    body = {"topic": topic}
    return _http_outcome(servers.http.post("/producer/register", json=body, headers=servers.headers(token)))


def _set_offset(servers: Servers, token: Token, topic: str) -> Outcome:
    servers.site.broker.create_topic(topic)
    body = {"consumer_id": servers.site.broker.registrations.register_consumer(topic), "offset": -1}
    answer = servers.http.post("/consumer/set_offset", json=body, headers=servers.headers(token))
    # Whoever has no right on the topic is not told that it is there.
    return "forbidden" if "no topic has a consumer with this id" in answer.text else _http_outcome(answer)


# Flight


def _flight(shown: str, operation: str, make: Callable[[Servers, Any, str], object], is_on_topic: bool = True) -> Call:
    def called(servers: Servers, token: Token, topic: str) -> Outcome:
        try:
            make(servers, servers.options(token), topic)
        except flight.FlightUnauthenticatedError:
            return "unauthenticated"
        except flight.FlightUnauthorizedError:
            return "forbidden"
        except (flight.FlightError, pa.ArrowException):
            # It came in, and the topic is not there.
            pass
        return "admitted"

    return Call(f"Flight {shown}", operation, called, is_on_topic)


_FIELDS: Final[dict[str, Any]] = {
    "group": GROUP,
    "member": "m",
    "producer_id": PRODUCER,
    "writer": PRODUCER,
    "offsets": {},
    "known": {},
    "partition": 0,
    "time_us": 0,
    "stages": [],
    "topics": [],
    "pipeline": "land",
    "report": PipelineReport(run_id="1", state="running", started_us=0),
    "before_us": 0,
    "before": {0: 0},
    "ranges": {0: (0, 1, 1)},
    "name": "nobody",
    "grants": [],
    "keep_seconds": 0.0,
    "token_id": "none",
}


def _action(kind: type[wire.Operation[Any]], operation: str, **more: Any) -> Call:
    names = {each.name for each in msgspec.structs.fields(kind)}
    given = {name: value for name, value in _FIELDS.items() if name in names} | more

    def make(servers: Servers, options: Any, topic: str) -> None:
        body = wire.encode(kind(topic=topic, **given))
        list(servers.caller.do_action(flight.Action(str(kind.__struct_config__.tag), body), options))

    shown = f"action {kind.__struct_config__.tag}" + (f" with {more}" if more else "")
    return _flight(shown, operation, make)


def _put(command: Callable[[str], tickets.Upload]) -> Call:
    def make(servers: Servers, options: Any, topic: str) -> None:
        batch = pa.record_batch({"value": [b"a"], "producer_id": [PRODUCER]})
        descriptor = flight.FlightDescriptor.for_command(tickets.encode(command(topic)))
        writer, reader = servers.caller.do_put(descriptor, batch.schema, options)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            reader.read()

    sample = command("x")
    return _flight(f"DoPut {tickets.name_of(sample)}", tickets.name_of(sample), make)


def _get(ticket: Callable[[str], tickets.Reading]) -> Call:
    def make(servers: Servers, options: Any, topic: str) -> None:
        servers.caller.do_get(flight.Ticket(tickets.encode(ticket(topic))), options).read_all()

    sample = ticket("x")
    return _flight(f"DoGet {tickets.name_of(sample)}", tickets.name_of(sample), make)


def _flight_calls() -> Iterator[Call]:
    for name, kind in wire.OPERATIONS.items():
        yield _action(kind, name)
    yield _action(wire.RegisterGroup, "change_group", important=True)
    yield _action(wire.RegisterGroup, "change_group", important=False)
    yield _action(wire.RegisterGroup, "change_group", consumers=2)
    yield _put(lambda topic: tickets.Publish(topic))
    yield _put(lambda topic: tickets.Publish(topic, producer_id=PRODUCER, epoch=1))
    yield _put(lambda topic: tickets.Publish(topic, writer=PRODUCER))
    yield _put(lambda topic: tickets.Publish(topic, writer=PRODUCER, producer_id=PRODUCER))
    yield _put(lambda topic: tickets.Stage(topic, "s"))
    yield _get(lambda topic: tickets.Read(topic, 0, 0))
    yield _get(lambda topic: tickets.Follow(topic, {0: 0}))

    def info(servers: Servers, options: Any, topic: str) -> None:
        servers.caller.get_flight_info(flight.FlightDescriptor.for_path(topic), options)

    yield _flight("GetFlightInfo", "describe_topic", info)
    yield _flight("ListFlights", "list_topics", lambda s, options, _: list(s.caller.list_flights(b"", options)))
    yield _flight("ListActions", "list_actions", lambda s, options, _: s.caller.list_actions(options))


# Kafka, where clients may commit an offset below the committed one


def _commit_back(servers: Servers, token: Token, topic: str) -> Outcome:
    broker, text = servers.site.broker, servers.texts[token.name]
    broker.create_topic(topic)
    broker.publish(topic, _ONE)
    broker.register_group(topic, GROUP, read_from="latest")
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
    with RawClient(servers.kafka_port) as client:
        client.call(_SASL_HANDSHAKE, 1, mechanism="PLAIN")
        if client.call(_SASL_AUTHENTICATE, 2, auth_bytes=b"\0user\0" + (text or "").encode()).error_code:
            return "unauthenticated"
        answer = client.call(_OFFSET_COMMIT, 7, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
    is_moved = broker.committed(topic, GROUP) == {0: 0}
    assert answer.topics[0].partitions[0].error_code == (0 if is_moved else _GROUP_DENIED)
    return "admitted" if is_moved else "forbidden"


CALLS: Final = [*_http_calls(), *_flight_calls(), Call("Kafka OffsetCommit", "commit_back", _commit_back)]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.shown)
def test_every_operation_asks_for_what_the_table_says(servers: Servers, call: Call) -> None:
    found, wanted = {}, {}
    for token in TOKENS:
        found[token.name] = call.make(servers, token, f"mine-{next(_COUNTER)}")
        wanted[token.name] = token.outcome(call.operation, call.is_on_topic, call.group)
    assert found == wanted


@pytest.mark.parametrize(
    "call", [call for call in CALLS if OPERATIONS[call.operation].for_producer], ids=lambda call: call.shown
)
def test_a_producer_id_of_another_token_is_refused_by_every_operation(servers: Servers, call: Call) -> None:
    found, wanted = {}, {}
    for token in TOKENS:
        found[token.name] = call.make(servers, token, f"mine-owned-{next(_COUNTER)}")
        wanted[token.name] = token.outcome(call.operation, call.is_on_topic, call.group, is_owned=True)
    assert found == wanted


@pytest.mark.parametrize(("method", "path", "operation"), ROUTES, ids=lambda part: str(part))
def test_every_route_has_a_row(method: str, path: str, operation: str | None) -> None:
    assert operation in OPERATIONS, f"{method} {path} has no row in the table, and is denied to everyone"


def test_every_action_and_ticket_has_a_row() -> None:
    kinds = [*get_args(tickets.Reading), *get_args(tickets.Upload)]
    assert {*wire.OPERATIONS, *(str(kind.__struct_config__.tag) for kind in kinds)} <= OPERATIONS.keys()
    called = {call.shown.removeprefix("Flight ").split(" ")[1] for call in CALLS if " Do" in call.shown}
    assert called == {str(kind.__struct_config__.tag) for kind in kinds}, "every ticket is tried above"


def test_every_row_is_used() -> None:
    assert {call.operation for call in CALLS} == OPERATIONS.keys()


def test_every_method_of_flight_knows_who_calls(servers: Servers) -> None:
    # GetSchema is not offered to anyone.
    lifecycle = {"run", "serve", "shutdown", "wait", "port", "get_schema"}
    methods = {name for name, _ in inspect.getmembers(flight.FlightServerBase) if not name.startswith("_")} - lifecycle
    assert methods <= vars(FlightServer).keys()
    with pytest.raises(OSError, match="not supported") as caught:
        servers.caller.get_schema(flight.FlightDescriptor.for_path("mine"), servers.options(TOKENS[0]))
    assert "Traceback" not in str(caught.value)
    for token, outcome in ((TOKENS[0], "unauthenticated"), (TOKENS[4], "forbidden")):

        def exchange(servers: Servers, options: Any, topic: str) -> None:
            descriptor = flight.FlightDescriptor.for_command(b"")
            writer, reader = servers.caller.do_exchange(descriptor, options)
            with writer:
                writer.done_writing()
                reader.read_all()

        assert _flight("DoExchange", "", exchange).make(servers, token, "mine") == outcome


@pytest.mark.parametrize(
    "command",
    [tickets.Publish("mine-1", writer="till-8"), tickets.Publish("mine-1", writer="till-8", producer_id=PRODUCER)],
)
def test_a_writer_of_commit_keys_counts_beside_a_producer(servers: Servers, command: tickets.Publish) -> None:
    own = next(token for token in TOKENS if token.name == "own producer")
    assert _put(lambda topic: command).make(servers, own, "mine-1") == "forbidden"


def test_the_documentation_has_every_operation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert rows.keys() == OPERATIONS.keys()
    for name, need in OPERATIONS.items():
        assert ("any right on the topic" in rows[name]) == need.any_right, name
        assert ("full access" in rows[name]) == need.full_access, name
        right, group, producer = f"`{need.right}`", "for the group", "for the producer ids"
        said = (right in rows[name], group in rows[name], producer in rows[name], rows[name].endswith("| yes |"))
        assert said == (need.right is not None, need.for_group, need.for_producer, need.is_audited), name


def test_a_client_of_the_queue_api_is_a_producer_id(servers: Servers) -> None:
    """Its count is the seqno of a source: a token that is limited to other producer ids must not raise it."""
    servers.site.broker.create_topic("counted")
    producer = servers.site.broker.registrations.register_producer("counted", None)
    limited = servers.site.broker.access.create(
        "till", [("counted", ["publish"])], producers=["till-7", "prod_client:till"]
    )
    headers = {"Authorization": f"Bearer {limited[1]}"}
    answers = []
    for name in ("till", "victim"):
        body = {"topic": "counted", "producer_id": producer, "message": "x", "prod_client": name}
        answers.append(servers.http.post("/producer/produce", json=body, headers=headers).status_code)
    assert answers == [200, 403]


def test_a_writer_is_checked_as_it_is_stored(servers: Servers) -> None:
    """A decomposed spelling is stored composed, and must not get past the pattern of another's name."""
    servers.site.broker.create_topic("composed")
    token = servers.site.broker.access.create("e", [("composed", ["publish"])], producers=["e*"])[1]
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    for writer, is_taken in (("e\u0301clair", False), ("\u00e9clair", False), ("eclair", True)):
        command = tickets.encode(tickets.Publish("composed", writer=writer, first_number=7))
        put, answers = servers.caller.do_put(flight.FlightDescriptor.for_command(command), _ONE.schema, options)
        try:
            with put:
                put.write_batch(_ONE)
                put.done_writing()
                answers.read()
        except flight.FlightError:
            assert not is_taken
        else:
            assert is_taken
    assert servers.site.broker.last_commit("composed", "\u00e9clair") is None


def test_a_column_that_is_given_twice_is_the_callers_mistake(servers: Servers) -> None:
    servers.site.broker.create_topic("twice")
    token = servers.site.broker.access.create("t", [("twice", ["publish"])], producers=["t"])[1]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a"]), pa.array(["t"]), pa.array(["t"])], ["value", *["producer_id"] * 2]
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/vnd.apache.arrow.stream"}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    answer = servers.http.post("/v1/topics/twice/messages", content=sink.getvalue().to_pybytes(), headers=headers)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("name", ["partitions", "self", "name", "nonsense"])
def test_a_setting_that_is_none_is_the_callers_mistake(servers: Servers, name: str) -> None:
    servers.site.broker.access.forget()
    body = wire.encode(wire.CreateTopic(topic="settings", settings={name: 3}))
    admin = next(token for token in TOKENS if token.outcome("create_topic", True, GROUP) == "admitted")
    with pytest.raises(flight.FlightError, match="known settings are"):
        list(servers.caller.do_action(flight.Action("create_topic", body), servers.options(admin)))


def test_a_transaction_needs_the_rights_of_all_its_parts(servers: Servers) -> None:
    broker = servers.site.broker
    for topic in ("mine-known", "other-known"):
        broker.create_topic(topic)
        broker.register_group(topic, GROUP)
    url = f"headrace://127.0.0.1:{servers.flight.port}"
    parts = list(itertools.chain.from_iterable(itertools.combinations(_PARTS, count) for count in (1, 2)))
    for token, named in itertools.product(TOKENS[4:], parts):
        stages: dict[str, list[Staged]] = {topic: [] for operation, topic in named if operation == "publish_staged"}
        offsets = [TransactionOffsets(topic, GROUP, {}) for operation, topic in named if operation == "commit"]
        is_other = token.name == "other topic"
        may = all(
            (is_other and topic == "other-known") or token.outcome(asked, topic == "mine-known", GROUP) == "admitted"
            for asked, topic in named
        )
        with connect(url, servers.texts[token.name]) as client:
            try:
                client.commit_transaction(stages, offsets, CommitKey(PRODUCER, 1))
                was_admitted = True
            except Forbidden:
                was_admitted = False
        assert was_admitted == may, (token.name, named)


def test_a_writer_of_transactions_belongs_to_its_token(servers: Servers) -> None:
    """Nobody can use up the numbers of another."""
    servers.site.broker.create_topic("written")
    for name in ("first", "second"):
        text = servers.site.access.create(name, [("written", ["publish"])])[1]
        with connect(f"headrace://127.0.0.1:{servers.flight.port}", text) as client:
            staged = client.stage("written", [_ONE])
            outcome = client.commit_transaction({"written": [staged]}, commit_key=CommitKey("w", 7, 1))
            assert outcome.messages == {"written": (1, 0)}
            with pytest.raises(CommitConflict, match="writer 'w' has published another batch 7, and"):
                client.commit_transaction({"written": []}, commit_key=CommitKey("w", 7, 2))
            with pytest.raises(StageNotFound, match=f"stage '{staged.stage}'"):
                client.commit_transaction({"written": [staged]}, commit_key=CommitKey("w", 8, 1))


def test_topics_are_described_only_to_readers(servers: Servers) -> None:
    for topic in ("mine-read", "other-read"):
        servers.site.broker.create_topic(topic)
    url, told = f"headrace://127.0.0.1:{servers.flight.port}", {}
    for token in TOKENS[4:]:
        with connect(url, servers.texts[token.name]) as client:
            told[token.name] = {topic.name for topic in client.describe_topics(["mine-read", "other-read"])}
    everywhere = [token for token in TOKENS[4:] if token.outcome("describe_topic", False, GROUP) == "admitted"]
    here = [token for token in TOKENS[4:] if token.outcome("describe_topic", True, GROUP) == "admitted"]
    wanted: dict[str, set[str]] = {token.name: set() for token in TOKENS[4:]}
    wanted |= {token.name: {"mine-read"} for token in here}
    wanted |= {token.name: {"mine-read", "other-read"} for token in everywhere}
    assert told == wanted | {"other topic": {"other-read"}}


def test_a_stage_belongs_to_the_token_that_wrote_it(servers: Servers) -> None:
    servers.site.broker.create_topic("staged")
    grants = [("staged", ["publish"])]
    clients = [
        connect(f"headrace://127.0.0.1:{servers.flight.port}", servers.site.access.create(name, grants)[1])
        for name in ("etl", "other")
    ]
    owner, other = clients
    rows = pa.record_batch({"value": [b"a"]})
    staged = owner.stage("staged", [rows], "s")
    with pytest.raises(StageNotFound, match="stage 's' of topic 'staged'"):
        other.publish_staged("staged", [staged])
    assert other.drop_stages("staged", ["s"]) == 0
    assert other.stage("staged", [rows], "s") == staged, "it has a stage of its own by this name"
    assert owner.publish_staged("staged", [staged]) == (1, 0)
    for client in clients:
        client.close()


def test_a_queue_consumer_is_registered_by_a_token_for_all_of_them(servers: Servers) -> None:
    """A consumer counts as a group: a token that is limited to other groups must not create any."""
    servers.site.broker.create_topic("queued")
    statuses = {}
    for groups in ("billing", "queue-consumer-7", "queue-consumer-*", "*"):
        _, text = servers.site.access.create("reader", [("queued", ["read"])], groups=[groups])
        headers = {"Authorization": f"Bearer {text}"}
        statuses[groups] = servers.http.post(
            "/consumer/register", json={"topic": "queued"}, headers=headers
        ).status_code
    assert statuses == {"billing": 403, "queue-consumer-7": 403, "queue-consumer-*": 200, "*": 200}

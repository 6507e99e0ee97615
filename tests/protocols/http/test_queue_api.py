"""The queue API over real sockets, line by line as its clients use it; the server is a process of its own."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.codecs import columns as codecs
from tests.broker.background import Background, together
from tests.protocols.http.servers import QueueClient
from tests.protocols.http.site import Site
from tests.server_process import ServerProcess

FIRST_CONSUMER = 10_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not end it; each has topics of its own."""
    process = ServerProcess(f"file:{tmp_path_factory.mktemp('queue')}/store?segment_frames=50")
    yield process
    process.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[QueueClient]:
    with QueueClient(server.port) as connected:
        yield connected


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def topic(client: QueueClient, name: str) -> str:
    """A topic."""
    client.create(name)
    return name


# Create topic


@pytest.mark.parametrize("spelling", ["name", "topic_name", "topic"])
def test_a_topic_is_created_in_every_spelling(client: QueueClient, name: str, spelling: str) -> None:
    status, answer = client.call("POST", "/topics", {spelling: name})
    assert status == 200
    assert set(answer) == {"status", "message"}
    assert isinstance(answer["message"], str)
    assert name in client.done("GET", "/topics")["topics"]


@pytest.mark.parametrize("partitions", [3, "3"])
def test_a_topic_is_created_with_partitions(client: QueueClient, name: str, partitions: object) -> None:
    client.create(name, partitions=partitions)
    status, described = client.json("GET", f"/v1/topics/{name}")
    assert (status, len(described["partitions"])) == (200, 3)


def test_a_topic_that_exists_is_not_created_again(client: QueueClient, topic: str) -> None:
    for again in (topic, topic.upper()):
        status, answer = client.call("POST", "/topics", {"name": again, "partitions": 5})
        assert status == 500
        assert "exists" in answer["message"]
    _, described = client.json("GET", f"/v1/topics/{topic}")
    assert len(described["partitions"]) == 1


def test_of_many_who_create_a_topic_one_succeeds(server: ServerProcess, name: str) -> None:
    def create() -> int:
        with QueueClient(server.port) as own:
            return own.call("POST", "/topics", {"name": name})[0]

    assert sorted(together([create] * 8)) == [200] + [500] * 7


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": None},
        {"name": ""},
        {"name": 5},
        {"name": ["a"]},
        {"name": "x" * 256},
        {"name": "line\nbreak"},
        {"name": "fine", "partitions": 0},
        {"name": "fine", "partitions": -1},
        {"name": "fine", "partitions": 10**30},
        {"name": "fine", "partitions": "many"},
        {"name": "fine", "partitions": 1.5},
        {"name": "fine", "partitions": True},
    ],
)
def test_a_malformed_topic_is_refused_with_400(client: QueueClient, body: Any) -> None:
    assert client.call("POST", "/topics", body)[0] == 400
    assert "fine" not in client.done("GET", "/topics")["topics"]


# List topics


def test_topics_are_listed_as_they_were_named_in_the_order_they_were_made(client: QueueClient, name: str) -> None:
    made = [f"{name}-B", f"{name}-a", f"{name}-C"]
    for each in made:
        client.create(each)
    status, answer = client.call("GET", "/topics")
    assert status == 200
    assert set(answer) == {"status", "topics"}
    assert [listed for listed in answer["topics"] if listed.startswith(f"{name}-")] == made


# Register


@pytest.mark.parametrize("spelling", ["topic", "topic_name"])
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_participants_register_and_get_an_integer(client: QueueClient, topic: str, kind: str, spelling: str) -> None:
    status, answer = client.call("POST", f"/{kind}/register", {spelling: topic})
    assert status == 200
    assert set(answer) == {"status", f"{kind}_id"}
    assert type(answer[f"{kind}_id"]) is int


def test_an_id_is_the_number_in_the_topic_then_the_topic_then_the_kind(client: QueueClient, topic: str) -> None:
    consumers = [client.consumer(topic) for _ in range(3)]
    producers = [client.producer(topic) for _ in range(2)]
    _, described = client.json("GET", f"/v1/topics/{topic}")
    expected = f"{described['id']:09d}"
    assert [str(consumer) for consumer in consumers] == [f"{number}{expected}0" for number in (1, 2, 3)]
    assert [str(producer) for producer in producers] == [f"{number}{expected}1" for number in (1, 2)]
    assert all(10 <= len(str(participant)) <= 28 for participant in consumers + producers)


def test_ids_given_out_at_the_same_time_differ(server: ServerProcess, topic: str) -> None:
    def register() -> list[int]:
        with QueueClient(server.port) as own:
            return [own.consumer(topic) for _ in range(5)] + [own.producer(topic) for _ in range(5)]

    given = [participant for ids in together([register] * 6) for participant in ids]
    assert len(set(given)) == len(given) == 60


def test_a_consumer_of_no_topic_is_refused_with_500(client: QueueClient, name: str) -> None:
    status, answer = client.call("POST", "/consumer/register", {"topic": name})
    assert status == 500
    assert name in answer["message"]
    assert name not in client.done("GET", "/topics")["topics"]


def test_registering_a_producer_makes_the_topic_if_it_is_missing(client: QueueClient, name: str) -> None:
    producer = client.producer(name)
    assert client.done("GET", "/topics")["topics"].count(name) == 1
    assert client.producer(name.upper()) > producer
    assert client.done("GET", "/topics")["topics"].count(name) == 1
    client.produce(name, producer, "hello")


@pytest.mark.parametrize("path", ["/consumer/register", "/producer/register"])
@pytest.mark.parametrize("body", [{}, {"topic": 5}, {"topic": ""}, {"topic": "x" * 256}, {"topic": None}])
def test_malformed_registrations_are_refused_with_400(client: QueueClient, path: str, body: Any) -> None:
    assert client.call("POST", path, body)[0] == 400


# Produce


@pytest.mark.parametrize("spelling", ["message", "log_message"])
@pytest.mark.parametrize("said", ["topic", "topic_name"])
@pytest.mark.parametrize("form", [int, str])
def test_a_message_is_produced_in_every_spelling(
    client: QueueClient, topic: str, said: str, spelling: str, form: Callable[[int], int | str]
) -> None:
    producer, consumer = client.producer(topic), client.consumer(topic)
    body = {said: topic, "producer_id": form(producer), spelling: "hello"}
    assert client.call("POST", "/producer/produce", body) == (200, {"status": "success"})
    assert client.consume(topic, consumer) == "hello"


@pytest.mark.parametrize(
    "message", ["", " ", "a\nb\0c", "ünïcödé 🐎", '{"json": "in it"}', "'; DROP TABLE all_topics; --", "x" * 300_000]
)
def test_a_message_comes_back_as_it_was(client: QueueClient, topic: str, message: str) -> None:
    client.produce(topic, client.producer(topic), message)
    assert client.consume(topic, client.consumer(topic)) == message


@pytest.mark.parametrize("form", [int, str])
def test_a_message_goes_to_the_partition_it_names(
    client: QueueClient, name: str, form: Callable[[int], int | str]
) -> None:
    client.create(name, partitions=3)
    producer = client.producer(name)
    for partition in (2, 0, 2):
        client.produce(name, producer, "x", partition=form(partition))
    _, described = client.json("GET", f"/v1/topics/{name}")
    assert [partition["end_offset"] for partition in described["partitions"]] == [1, 0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"topic": None},
        {"topic": 5},
        {"message": None},
        {"message": 5},
        {"message": {"a": 1}},
        {"producer_id": None},
        {"producer_id": "abc"},
        {"producer_id": "-1"},
        {"producer_id": ""},
        {"producer_id": "١"},
        {"producer_id": 1.5},
        {"producer_id": True},
        {"producer_id": [1]},
        {"producer_id": "1" * 5000},
        {"partition": 7},
        {"partition": -1},
        {"partition": 1 << 40},
        {"partition": "first"},
        {"message": "x" * (1 << 20) + "x"},
    ],
)
def test_malformed_messages_are_refused_with_400_and_nothing_is_written(
    client: QueueClient, topic: str, change: dict[str, Any]
) -> None:
    body = {"topic": topic, "producer_id": client.producer(topic), "message": "x", **change}
    assert client.call("POST", "/producer/produce", body)[0] == 400
    assert client.size(topic, client.consumer(topic)) == 0


def test_a_message_that_is_too_large_does_not_harm_those_produced_with_it(server: ServerProcess, topic: str) -> None:
    with QueueClient(server.port) as client:
        producer, consumer = client.producer(topic), client.consumer(topic)

    def produce(message: str) -> set[int]:
        body = {"topic": topic, "producer_id": producer, "message": message}
        with QueueClient(server.port) as own:
            return {own.call("POST", "/producer/produce", body)[0] for _ in range(20)}

    messages = ["x" * (1 << 20) + "x", *"abcdef"]
    assert together([lambda text=text: produce(text) for text in messages]) == [{400}] + [{200}] * 6  # type: ignore[misc]
    with QueueClient(server.port) as client:
        assert sorted(client.rest(topic, consumer)) == sorted("abcdef" * 20)


def test_producing_to_no_topic_is_refused_with_500(client: QueueClient, topic: str, name: str) -> None:
    body = {"topic": f"{name}-missing", "producer_id": client.producer(topic), "message": "x"}
    status, answer = client.call("POST", "/producer/produce", body)
    assert status == 500
    assert "does not exist" in answer["message"]


# Consume and size


@pytest.mark.parametrize("path", ["/consumer/consume", "/size"])
@pytest.mark.parametrize("said", ["topic", "topic_name"])
@pytest.mark.parametrize("form", [int, str])
@pytest.mark.parametrize("place", ["body", "query", "both"])
def test_reading_takes_a_body_or_a_query(
    client: QueueClient, topic: str, path: str, said: str, form: Callable[[int], int | str], place: str
) -> None:
    client.produce(topic, client.producer(topic), "hello")
    consumer = form(client.consumer(topic))
    body: dict[str, Any] = {said: topic, "consumer_id": consumer}
    query = None if place == "body" else dict(body)
    if place == "both":
        query = {"consumer_id": body.pop("consumer_id")}
    status, answer = client.call("GET", path, None if place == "query" else body, query)
    message = {"message": "hello", "log_message": "hello", "offset": 0}
    expected = message if path == "/consumer/consume" else {"size": 1}
    assert (status, answer) == (200, {"status": "success", **expected})


def test_everything_may_be_in_the_query(client: QueueClient, name: str) -> None:
    assert client.call("POST", "/topics", query={"name": name})[0] == 200
    producer = client.call("POST", "/producer/register", query={"topic": name})[1]["producer_id"]
    consumer = client.call("POST", "/consumer/register", query={"topic": name})[1]["consumer_id"]
    given = {"topic": name, "producer_id": producer, "message": "a b&c=d?🐎"}
    assert client.call("POST", "/producer/produce", query=given)[0] == 200
    assert client.consume(name, consumer) == "a b&c=d?🐎"


def test_nothing_to_read_is_500_until_something_comes(client: QueueClient, topic: str) -> None:
    producer, consumer = client.producer(topic), client.consumer(topic)
    for text in ("one", "two"):
        status, answer = client.call("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer})
        assert status == 500
        assert "nothing to read" in answer["message"]
        client.produce(topic, producer, text)
        assert client.consume(topic, consumer) == text


def test_size_is_what_is_left_for_this_consumer(client: QueueClient, topic: str) -> None:
    producer, early = client.producer(topic), client.consumer(topic)
    assert client.size(topic, early) == 0
    for number in range(5):
        client.produce(topic, producer, str(number))
    late = client.consumer(topic)
    assert client.consume(topic, early) == "0"
    assert (client.size(topic, early), client.size(topic, late)) == (4, 5)
    assert client.rest(topic, early) == ["1", "2", "3", "4"]
    assert (client.size(topic, early), client.size(topic, late)) == (0, 5)


@pytest.mark.parametrize("path", ["/consumer/consume", "/size"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "x"},
        {"consumer_id": 1},
        {"topic": 1, "consumer_id": 1},
        {"topic": "x", "consumer_id": "abc"},
        {"topic": "x", "consumer_id": None},
        {"topic": "x", "consumer_id": 1.5},
        {"topic": "x", "consumer_id": {}},
    ],
)
def test_malformed_reads_are_refused_with_400(client: QueueClient, path: str, body: Any) -> None:
    assert client.call("GET", path, body)[0] == 400


@pytest.mark.parametrize("query", ["topic=%ff&consumer_id=1", "topic=x&consumer_id=%FF", "topic=x&consumer_id=-1"])
def test_malformed_queries_are_refused_with_400(client: QueueClient, query: str) -> None:
    assert client.raw("GET", f"/size?{query}")[0] == 400
    assert client.raw("GET", "/size?" + "&".join(["a=b"] * 200))[0] == 400


# Ids


def wrong_ids(right: int, other_kind: int, elsewhere: int) -> list[int | str]:
    """Ids that look right and are not."""
    return [
        other_kind,
        elsewhere,
        right + FIRST_CONSUMER,
        right % FIRST_CONSUMER,
        right + 10,
        right + 2,
        0,
        1,
        -1,
        -right,
        int("9" * 18 + str(right)[1:]),
        int("9" * 28),
        10**40,
        str(10**40),
        int("9" * 60),
    ]


def test_consumer_ids_are_checked_in_all_their_parts(client: QueueClient, topic: str, name: str) -> None:
    client.create(f"{name}-other")
    consumer, producer = client.consumer(topic), client.producer(topic)
    client.produce(topic, producer, "hello")
    for wrong in wrong_ids(consumer, producer, client.consumer(f"{name}-other")):
        for path in ("/consumer/consume", "/size"):
            status, answer = client.call("GET", path, {"topic": topic, "consumer_id": wrong})
            assert status == 500, (wrong, answer)
            assert "consumer_id" in answer["message"]
    assert client.rest(topic, consumer) == ["hello"]


def test_producer_ids_are_checked_in_all_their_parts(client: QueueClient, topic: str, name: str) -> None:
    consumer, producer = client.consumer(topic), client.producer(topic)
    for wrong in wrong_ids(producer, consumer, client.producer(f"{name}-other")):
        body = {"topic": topic, "producer_id": wrong, "message": "x"}
        status, answer = client.call("POST", "/producer/produce", body)
        assert status == 500, (wrong, answer)
        assert "producer_id" in answer["message"]
    assert client.size(topic, consumer) == 0


def test_a_number_that_is_given_out_later_counts_from_then_on(client: QueueClient, topic: str) -> None:
    second = client.producer(topic) + FIRST_CONSUMER
    body = {"topic": topic, "producer_id": second, "message": "x"}
    assert client.call("POST", "/producer/produce", body)[0] == 500
    assert client.producer(topic) == second
    assert client.call("POST", "/producer/produce", body)[0] == 200


def test_ids_of_a_topic_that_was_deleted_are_nothing_in_one_of_the_same_name(client: QueueClient, topic: str) -> None:
    consumer, producer = client.consumer(topic), client.producer(topic)
    client.produce(topic, producer, "old")
    assert client.send("DELETE", f"/v1/topics/{topic}")[0] == 204
    for again in (False, True):
        if again:
            client.create(topic)
        assert client.call("GET", "/size", {"topic": topic, "consumer_id": consumer})[0] == 500
        body = {"topic": topic, "producer_id": producer, "message": "x"}
        assert client.call("POST", "/producer/produce", body)[0] == 500
    client.produce(topic, client.producer(topic), "new")
    assert client.rest(topic, client.consumer(topic)) == ["new"]


# Failures


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/topics"),
        ("POST", "/consumer/register"),
        ("POST", "/producer/register"),
        ("POST", "/producer/produce"),
        ("GET", "/consumer/consume"),
        ("GET", "/size"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"\x00",
        b"\xff\xfe",
        b'{"topic": "\xff"}',
        b'{"topic": "\\ud800", "name": "\\ud800"}',
        b"topic=x&name=x",
        b"<html></html>",
        b'{"a": ' + b"[" * 100_000,
        b'{"topic": "x", "consumer_id": ' + b"9" * 6000 + b"}",
        b"{} trailing",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_not_json_is_refused_with_400(client: QueueClient, method: str, path: str, body: bytes) -> None:
    assert client.raw(method, path, body)[0] == 400


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data", "\"';<>", "", None])
def test_the_content_type_does_not_matter(client: QueueClient, name: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    assert client.raw("POST", "/topics", json.dumps({"name": name}).encode(), headers)[0] == 200


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/topics", ["PUT", "PATCH", "DELETE", "TRACE"]),
        ("/consumer/register", ["GET", "PUT", "DELETE"]),
        ("/producer/register", ["GET", "PUT", "DELETE"]),
        ("/producer/produce", ["GET", "PUT", "DELETE"]),
        ("/consumer/consume", ["POST", "PUT", "DELETE", "TRACE"]),
        ("/size", ["POST", "PUT", "DELETE"]),
    ],
)
def test_a_wrong_method_is_refused_in_the_same_form(client: QueueClient, path: str, methods: list[str]) -> None:
    for method in methods:
        assert client.raw(method, path)[0] == 405


def test_a_body_that_is_too_large_is_refused_in_the_same_form(server: ServerProcess) -> None:
    head = (
        b"POST /producer/produce HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1000000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head + b"{")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "failure"


def test_unknown_fields_are_passed_over(client: QueueClient, topic: str) -> None:
    client.produce(topic, client.producer(topic), "hello", colour="red", nested={"a": [1]})
    assert client.consume(topic, client.consumer(topic)) == "hello"


def test_what_nobody_expected_is_answered_without_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("secret inside")

    with Site(tmp_path) as site, QueueClient(site.port) as client:
        client.create("orders")
        monkeypatch.setattr(site.broker.registrations, "size", fail)
        status, answer = client.call("GET", "/size", {"topic": "orders", "consumer_id": 1})
    assert status == 500
    assert "secret" not in answer["message"]
    assert "secret inside" in caplog.text


# Names


HOSTILE = [
    "all_topics",
    "all_consumers",
    "quote's",
    'say "hi"',
    "with spaces and  more",
    " ",
    "a/b/../c",
    "../../etc/passwd",
    "/",
    "%2F",
    "100%",
    "🐎🌊",
    "ünïcödé",
    "名前",
    "x" * 255,
    "🐎" * 255,
    "'; DROP TABLE all_topics; --",
    '" OR ""="',
    "Robert'); DELETE FROM all_consumers;--",
    "?topic=other&x=1#y",
    "null",
    "{}",
    "$(reboot)",
    "-",
    ".",
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_any_name_is_an_ordinary_topic(client: QueueClient, hostile: str) -> None:
    client.create(hostile)
    assert hostile in client.done("GET", "/topics")["topics"]
    producer, consumer = client.producer(hostile), client.consumer(hostile)
    for number in range(3):
        client.produce(hostile, producer, f"{number} {hostile}")
    status, answer = client.call("GET", "/size", query={"topic": hostile, "consumer_id": consumer})
    assert (status, answer["size"]) == (200, 3)
    assert client.rest(hostile, consumer) == [f"{number} {hostile}" for number in range(3)]
    assert client.json("GET", f"/v1/topics/{quote(hostile, safe='')}")[1]["name"] == hostile


def test_names_are_not_case_sensitive(client: QueueClient, name: str) -> None:
    client.create(f"{name}-Straße")
    producer, consumer = client.producer(f"{name}-STRASSE"), client.consumer(f"{name}-strasse")
    client.produce(f"{name.upper()}-straSSE", producer, "hello")
    assert client.consume(f"{name}-STRAßE", consumer) == "hello"


# Order


def test_every_consumer_sees_all_partitions_in_the_order_produced(client: QueueClient, name: str) -> None:
    client.create(name, partitions=4)
    producer, first = client.producer(name), client.consumer(name)
    sent = [str(number) for number in range(40)]
    seen = []
    for number, text in enumerate(sent):
        client.produce(name, producer, text, **({"partition": number * 7 % 4} if number % 3 else {}))
        if number % 2:
            seen.append(client.consume(name, first))
    assert seen + client.rest(name, first) == sent
    assert client.rest(name, client.consumer(name)) == sent


def test_partitions_that_are_added_later_are_read_in_the_same_order(client: QueueClient, topic: str) -> None:
    producer, consumer = client.producer(topic), client.consumer(topic)
    client.produce(topic, producer, "0")
    assert client.consume(topic, consumer) == "0"
    assert client.json("PATCH", f"/v1/topics/{topic}", {"partitions": 3})[0] == 200
    for number, partition in enumerate([2, 0, 1, 2], start=1):
        client.produce(topic, producer, str(number), partition=partition)
    assert client.size(topic, consumer) == 4
    assert client.rest(topic, consumer) == ["1", "2", "3", "4"]


def test_two_requests_of_one_consumer_never_get_the_same_message(server: ServerProcess, name: str) -> None:
    with QueueClient(server.port) as client:
        client.create(name, partitions=3)
        producer, consumer = client.producer(name), client.consumer(name)
        sent = [str(number) for number in range(300)]
        for text in sent:
            client.produce(name, producer, text)

    def read() -> list[str]:
        with QueueClient(server.port) as own:
            return own.rest(name, consumer)

    parts = together([read] * 6)
    assert sorted((text for part in parts for text in part), key=int) == sent
    for part in parts:
        assert part == sorted(part, key=int)


TOPICS, PRODUCERS, CONSUMERS, MESSAGES = 3, 5, 3, 140


def test_five_producers_and_three_consumers_over_three_topics(server: ServerProcess, name: str) -> None:
    """Thousands of messages: everyone sees everything once, in one order, each producer's messages as it sent them."""
    topics = [f"{name}-{number}" for number in range(TOPICS)]
    with QueueClient(server.port) as client:
        for number, each in enumerate(topics):
            client.create(each, partitions=1 + 2 * number)

    def produce(number: int) -> None:
        with QueueClient(server.port) as own:
            ids = {each: own.producer(each) for each in topics}
            for sequence in range(MESSAGES):
                for each in topics:
                    own.produce(each, ids[each], f"{number}:{sequence}")

    def consume() -> dict[str, list[str]]:
        with QueueClient(server.port) as own:
            ids = {each: own.consumer(each) for each in topics}
            seen: dict[str, list[str]] = {each: [] for each in topics}
            while any(len(messages) < PRODUCERS * MESSAGES for messages in seen.values()):
                for each in topics:
                    message = own.consume(each, ids[each])
                    if message is not None:
                        seen[each].append(message)
            assert [own.size(each, ids[each]) for each in topics] == [0] * TOPICS
            assert [own.consume(each, ids[each]) for each in topics] == [None] * TOPICS
            return seen

    producing = [Background(lambda number=number: produce(number)) for number in range(PRODUCERS)]  # type: ignore[misc]
    consuming = [Background(consume) for _ in range(CONSUMERS)]
    for producer in producing:
        producer.result()
    seen = [consumer.result() for consumer in consuming]
    for each in topics:
        first = seen[0][each]
        assert all(other[each] == first for other in seen)
        assert len(set(first)) == len(first) == PRODUCERS * MESSAGES
        for number in range(PRODUCERS):
            own = [message for message in first if message.startswith(f"{number}:")]
            assert own == [f"{number}:{sequence}" for sequence in range(MESSAGES)]


# Together with the rest of Headrace


def test_a_consumer_is_a_group_of_its_own(client: QueueClient, topic: str) -> None:
    consumers = [client.consumer(topic) for _ in range(2)]
    groups = client.json("GET", f"/v1/topics/{topic}")[1]["groups"]
    assert groups == [f"queue-consumer-{consumer}" for consumer in consumers]


def test_what_others_publish_is_read_as_text(client: QueueClient, topic: str) -> None:
    values = [b"plain", b"\xff\x00", codecs.encode(pa.array([b"packed"]), "gzip")[0].as_py(), b"no gzip"]
    batch = pa.record_batch(
        {"value": pa.array(values, pa.binary()), "codec": pa.array([None, "raw", "gzip", "gzip"], pa.string())}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    body = sink.getvalue().to_pybytes()
    assert client.json("PATCH", f"/v1/topics/{topic}", {"settings": {"codecs": ["raw", "gzip"]}})[0] == 200
    assert client.send("POST", f"/v1/topics/{topic}/messages", body, headers)[0] == 200
    assert client.rest(topic, client.consumer(topic)) == ["plain", "\ufffd\0", "packed", "no gzip"]


def test_the_page_shows_every_request_with_an_example_that_works(client: QueueClient, name: str) -> None:
    paths = client.json("GET", "/docs/openapi.json")[1]["paths"]
    shown = [
        (method.upper(), path, operation)
        for path, item in paths.items()
        for method, operation in item.items()
        if operation.get("tags") == ["queue API"]
    ]
    known_requests = {(method, path) for method, path, _ in REQUESTS}
    assert {(method, path) for method, path, _ in shown} == known_requests | {("GET", "/status")}
    client.create(name)
    producer, consumer = client.producer(name), client.consumer(name)
    known: dict[str, Any] = {"name": f"{name}-new", "topic": name, "producer_id": producer, "consumer_id": consumer}
    known |= {"id": consumer, "type": "consumer", "prod_client": "till-7"}
    client.produce(name, producer, "hello")
    for method, path, operation in sorted(shown, key=lambda each: each[1] == "/consumer/consume"):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        example = body.get("examples", {}).get("usual", {}).get("value", {})
        given = {field: known.get(field, value) for field, value in example.items()}
        query = {each["name"]: known[each["name"]] for each in operation.get("parameters", ())}
        status, answer = client.call(method, path, given or None, query or None)
        assert (status, set(answer)) == (200, set(example_answer(operation))), path


def example_answer(operation: dict[str, Any]) -> dict[str, Any]:
    example: dict[str, Any] = operation["responses"]["200"]["content"]["application/json"]["examples"]["usual"]["value"]
    return example


# Restart


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_is_where_it_was_after_a_restart(tmp_path: Path, end: str) -> None:
    server = ServerProcess(f"file:{tmp_path}/store?segment_frames=20")
    try:
        with QueueClient(server.port) as client:
            client.create("Orders", partitions=3)
            producer, reading, idle = client.producer("orders"), client.consumer("orders"), client.consumer("orders")
            sent = [str(number) for number in range(60)]
            for text in sent:
                client.produce("orders", producer, text)
            before = [client.consume("orders", reading) for _ in range(25)]
        server.stop() if end == "stop" else server.kill()
        server.start()
        with QueueClient(server.port) as client:
            assert client.done("GET", "/topics")["topics"] == ["Orders"]
            assert (client.size("orders", reading), client.size("orders", idle)) == (35, 60)
            for text in ("60", "61"):
                client.produce("orders", producer, text)
            assert before + client.rest("orders", reading) == [*sent, "60", "61"]
            assert client.rest("orders", idle) == [*sent, "60", "61"]
            assert client.consumer("orders") == idle + FIRST_CONSUMER
            assert client.producer("orders") == producer + FIRST_CONSUMER
            not_yet = {"topic": "orders", "consumer_id": idle + 2 * FIRST_CONSUMER}
            assert client.call("GET", "/size", not_yet)[0] == 500
    finally:
        server.close()


# Access


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """A server that lets in only whom it knows."""
    url = f"file:{tmp_path_factory.mktemp('guarded')}/store"
    with Broker.open(url) as broker:
        broker.create_topic("open")
        broker.create_topic("secret")
        tokens = {
            "publisher": broker.access.create("publisher", [("open", ["publish"])])[1],
            "reader": broker.access.create("reader", [("open", ["read"])])[1],
            "manager": broker.access.create("manager", [("new-*", ["manage"])])[1],
            "owner": broker.access.create("owner", [("*", ["publish", "read", "manage"])])[1],
        }
    server = ServerProcess(url)
    yield server, tokens
    server.close()


REQUESTS = [
    ("POST", "/topics", {"name": "open"}),
    ("GET", "/topics", None),
    ("POST", "/consumer/register", {"topic": "open"}),
    ("POST", "/producer/register", {"topic": "open"}),
    ("POST", "/producer/produce", {"topic": "open", "producer_id": 10_000_000_011, "message": "x"}),
    ("GET", "/consumer/consume", {"topic": "open", "consumer_id": FIRST_CONSUMER + 10}),
    ("GET", "/size", {"topic": "open", "consumer_id": FIRST_CONSUMER + 10}),
    ("POST", "/consumer/set_offset", {"consumer_id": FIRST_CONSUMER + 10, "offset": -1}),
    ("GET", "/login", {"topic": "open", "id": FIRST_CONSUMER + 10, "type": "consumer"}),
    ("GET", "/producer/client_size", {"prod_client": "till-7"}),
]


@pytest.mark.parametrize("token", [None, "", "hr_000000000000_wrong", "hr_é_é", "hr__"])
@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_without_a_good_token_nobody_comes_in(
    guarded: tuple[ServerProcess, dict[str, str]], method: str, path: str, body: Any, token: str | None
) -> None:
    with QueueClient(guarded[0].port, token) as client:
        assert client.call(method, path, body)[0] == 401
        assert client.call(method, path, {"nonsense": 1})[0] == 401


def test_each_right_allows_its_requests_and_no_others(guarded: tuple[ServerProcess, dict[str, str]]) -> None:
    server, tokens = guarded
    with QueueClient(server.port, tokens["owner"]) as owner:
        producer, consumer = owner.producer("open"), owner.consumer("open")
        owner.producer("secret")
    requests: dict[str, tuple[str, str, Any]] = {
        "create": ("POST", "/topics", {"name": "new-1"}),
        "create elsewhere": ("POST", "/topics", {"name": "other"}),
        "register consumer": ("POST", "/consumer/register", {"topic": "OPEN"}),
        "register producer": ("POST", "/producer/register", {"topic": "Open"}),
        "register producer, new topic": ("POST", "/producer/register", {"topic": "new-2"}),
        "register producer, new topic elsewhere": ("POST", "/producer/register", {"topic": "openly"}),
        "produce": ("POST", "/producer/produce", {"topic": "open", "producer_id": producer, "message": "x"}),
        "consume": ("GET", "/consumer/consume", {"topic": "open", "consumer_id": consumer}),
        "size": ("GET", "/size", {"topic": "open", "consumer_id": consumer}),
        "consumer of secret": ("POST", "/consumer/register", {"topic": "secret"}),
        "producer of secret": ("POST", "/producer/register", {"topic": "secret"}),
        "size of secret": ("GET", "/size", {"topic": "secret", "consumer_id": consumer}),
    }
    allowed = {
        "publisher": {"register producer", "produce"},
        "reader": {"register consumer", "consume", "size"},
        "manager": {"create", "register producer, new topic"},
    }
    for who, may in allowed.items():
        with QueueClient(server.port, tokens[who]) as client:
            statuses = {what: client.call(*request)[0] for what, request in requests.items()}
        assert {what for what, status in statuses.items() if status == 200} == may
        assert {status for what, status in statuses.items() if what not in may} == {403}


def test_only_topics_that_one_may_see_are_listed(guarded: tuple[ServerProcess, dict[str, str]]) -> None:
    server, tokens = guarded
    with QueueClient(server.port, tokens["reader"]) as client:
        assert client.done("GET", "/topics")["topics"] == ["open"]
    with QueueClient(server.port, tokens["owner"]) as client:
        assert {"open", "secret"} <= set(client.done("GET", "/topics")["topics"])

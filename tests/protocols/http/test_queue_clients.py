"""What clients of the PgQueue HTTP API do to find a server and to recover their position, on every engine.

The server is a process of its own; on engines that keep what they have it is killed on the way.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event

from headrace.broker import Broker, QueueApiSettings
from headrace.core.rights import Right
from headrace.protocols.http.settings import HttpSettings
from headrace.storage.open import open_store
from tests.broker.sites import DURABLE_ENGINES, ENGINES, Engine
from tests.protocols.http.servers import QueueClient
from tests.protocols.http.site import Site
from tests.server_process import ServerProcess


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen


@pytest.fixture
def server(engine: Engine, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(engine.url(tmp_path / "store", request.getfixturevalue))
    yield process
    process.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[QueueClient]:
    with QueueClient(server.port) as connected:
        yield connected


@pytest.fixture
def shared_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres").fresh_url())


def text_batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([text.encode() for text in texts])], ["value"])


@contextmanager
def statements_of(broker: Broker) -> Iterator[list[str]]:
    """What the catalog says to its database; the connections of the logs must not be used meanwhile."""
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement.strip())

    catalog: Any = broker.store.catalog
    connections: Any = broker.store._connections  # type: ignore[attr-defined]
    run = connections._persist

    def refuse(*arguments: Any) -> Any:
        statements.append("a query of the log")
        return run(*arguments)

    event.listen(catalog._transactions._engine, "before_cursor_execute", note)
    connections._persist = refuse
    try:
        yield statements
    finally:
        event.remove(catalog._transactions._engine, "before_cursor_execute", note)
        connections._persist = run


def take(client: QueueClient, topic: str, consumer: int) -> dict[str, Any]:
    """The whole answer that a message comes in."""
    answer: dict[str, Any] = client.done("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer})
    return answer


def kill(server: ServerProcess, engine: Engine) -> None:
    """Kill the server and start another one, where that leaves anything."""
    if engine in DURABLE_ENGINES:
        server.kill()
        server.start()


def test_a_server_says_that_it_runs(client: QueueClient) -> None:
    assert client.done("GET", "/status") == {"status": "success", "message": "running"}
    assert client.call("POST", "/status", {})[0] == 405


def test_a_message_comes_in_every_spelling_with_its_place(client: QueueClient) -> None:
    client.create("orders", partitions=3)
    producer, consumer = client.producer("orders"), client.consumer("orders")
    for number in range(10):
        client.produce("orders", producer, f"line {number}")
    for number in range(10):
        text = f"line {number}"
        expected = {"status": "success", "message": text, "log_message": text, "offset": number}
        assert take(client, "orders", consumer) == expected


def test_a_consumer_goes_back_to_what_it_processed_safely(
    client: QueueClient, server: ServerProcess, engine: Engine
) -> None:
    """A client that crashes after ten messages of which it kept seven sets its position, and misses nothing."""
    client.create("orders", partitions=3)
    producer, consumer = client.producer("orders"), client.consumer("orders")
    for number in range(12):
        client.produce("orders", producer, f"{number}")
    safe = [take(client, "orders", consumer) for _ in range(10)][6]
    assert (safe["message"], safe["offset"]) == ("6", 6)
    kill(server, engine)
    client.close()
    assert client.done("GET", "/login", {"topic": "orders", "id": consumer, "type": "consumer"})
    client.done("POST", "/consumer/set_offset", {"consumer_id": consumer, "offset": safe["offset"]})
    assert client.size("orders", consumer) == 5
    assert client.rest("orders", consumer) == ["7", "8", "9", "10", "11"]
    client.done("POST", "/consumer/set_offset", {"consumer_id": str(consumer), "offset": "-1"})
    assert client.rest("orders", consumer) == [f"{number}" for number in range(12)]


def test_a_producer_that_crashed_asks_how_much_arrived(
    client: QueueClient, server: ServerProcess, engine: Engine
) -> None:
    client.create("orders")
    producer, consumer = client.producer("orders"), client.consumer("orders")
    lines = [f"line {number}" for number in range(9)]
    for line in lines[:4]:
        client.produce("orders", producer, line, prod_client="shop/7")
    client.produce("orders", producer, "of another", prod_client="shop/8", partition=0)
    kill(server, engine)
    client.close()
    arrived = client.done("GET", "/producer/client_size?prod_client=shop%2F7")["count"]
    assert arrived == 4
    for line in lines[arrived:]:
        client.produce("orders", producer, line, prod_client="shop/7")
    assert client.done("GET", "/producer/client_size", {"prod_client": "shop/7"})["count"] == 9
    assert client.done("GET", "/producer/client_size", {"prod_client": "never"})["count"] == 0
    assert [line for line in client.rest("orders", consumer) if line != "of another"] == lines


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/consumer/set_offset", {"offset": 0}),
        ("POST", "/consumer/set_offset", {"consumer_id": "CONSUMER"}),
        ("POST", "/consumer/set_offset", {"consumer_id": "CONSUMER", "offset": -2}),
        ("POST", "/consumer/set_offset", {"consumer_id": "CONSUMER", "offset": 1}),
        ("POST", "/consumer/set_offset", {"consumer_id": "CONSUMER", "offset": 10**30}),
        ("POST", "/consumer/set_offset", {"consumer_id": "CONSUMER", "offset": "first"}),
        ("GET", "/login", {"topic": "orders", "type": "consumer"}),
        ("GET", "/login", {"topic": "orders", "id": "CONSUMER"}),
        ("GET", "/login", {"topic": "orders", "id": "CONSUMER", "type": "reader"}),
        ("GET", "/login", {"topic": "orders", "id": "CONSUMER", "type": "producer"}),
        ("GET", "/login", {"topic": "orders", "id": 5, "type": "consumer"}),
        ("GET", "/login", {"topic": "none", "id": "CONSUMER", "type": "consumer"}),
        ("GET", "/producer/client_size", {}),
        ("GET", "/producer/client_size", {"prod_client": ""}),
        ("GET", "/producer/client_size", {"prod_client": "x" * 3000}),
    ],
)
def test_what_is_malformed_or_unknown_is_refused_with_400(site: Site, method: str, path: str, body: Any) -> None:
    with QueueClient(site.port) as client:
        client.create("orders")
        producer, consumer = client.producer("orders"), client.consumer("orders")
        client.produce("orders", producer, "a")
        given = {name: consumer if value == "CONSUMER" else value for name, value in body.items()}
        assert client.call(method, path, given)[0] == 400
        assert client.size("orders", consumer) == 1


def test_ids_are_accepted_by_login_in_every_form(site: Site) -> None:
    with QueueClient(site.port) as client:
        producer = client.producer("orders")
        consumer = client.consumer("orders")
        for topic in ("topic", "topic_name", "name"):
            for kind, number in (("producer", producer), ("consumer", consumer), ("consumer", str(consumer))):
                assert client.call("GET", "/login", {topic: "ORDERS", "id": number, "type": kind})[0] == 200
                assert client.call("GET", "/login", None, {topic: "orders", "id": number, "type": kind})[0] == 200


def test_a_consumer_of_no_topic_has_no_position(site: Site) -> None:
    with QueueClient(site.port) as client:
        status, answer = client.call("POST", "/consumer/set_offset", {"consumer_id": 5, "offset": 0})
        assert (status, "no topic" in answer["message"]) == (500, True)


def test_rights_count_for_every_call(site: Site) -> None:
    _, admin = site.access.create("root", [("*", list(Right))])
    _, secret = site.access.create("shop", [("orders", ["read"])])
    with QueueClient(site.port, admin) as client, QueueClient(site.port, secret) as shop:
        producers = [client.producer(topic) for topic in ("orders", "hidden")]
        consumers = [client.consumer(topic) for topic in ("orders", "hidden")]
        client.produce("orders", producers[0], "a", prod_client="till")
        assert shop.call("POST", "/consumer/set_offset", {"consumer_id": consumers[0], "offset": -1})[0] == 200
        status, answer = shop.call("POST", "/consumer/set_offset", {"consumer_id": consumers[1], "offset": -1})
        assert (status, "hidden" in answer["message"]) == (500, False)
        assert shop.call("GET", "/login", {"topic": "orders", "id": consumers[0], "type": "consumer"})[0] == 200
        assert shop.call("GET", "/login", {"topic": "orders", "id": producers[0], "type": "producer"})[0] == 403
        assert shop.call("GET", "/login", {"topic": "hidden", "id": consumers[1], "type": "consumer"})[0] == 403
        # What it may not publish to is not counted.
        assert shop.done("GET", "/producer/client_size", {"prod_client": "till"})["count"] == 0
        assert client.done("GET", "/producer/client_size", {"prod_client": "till"})["count"] == 1
    with QueueClient(site.port) as nobody:
        assert nobody.call("GET", "/login", {"topic": "orders", "id": 1, "type": "consumer"})[0] == 401
        assert nobody.call("GET", "/status")[0] == 200


def test_creating_a_topic_is_answered_as_the_setting_says(tmp_path: Path) -> None:
    with Site(tmp_path, queue_api=QueueApiSettings(created_status=201)) as site:
        answer = site.client.post("/topics", json={"name": "orders"})
        assert (answer.status_code, answer.json()["status"]) == (201, "success")
        assert site.client.post("/topics", json={"name": "orders"}).status_code == 500
        assert site.client.post("/consumer/register", json={"topic": "orders"}).status_code == 200


def test_limits_are_answered_in_the_form_of_this_api(tmp_path: Path) -> None:
    with Site(tmp_path, HttpSettings(connections_max=1, request_seconds_max=0.2)) as site:
        site.client.post("/topics", json={"name": "orders"})
        with socket.create_connection(("127.0.0.1", site.port)) as slow:
            slow.sendall(b"POST /producer/produce HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
            answer = slow.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408 ")
        said = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (said["status"], set(said)) == ("failure", {"status", "message"})


def test_consumers_are_no_series_of_their_own(site: Site) -> None:
    with QueueClient(site.port) as client:
        client.create("orders")
        for _ in range(3):
            client.consumer("orders")
        site.broker.register_group("orders", "billing", important=True)
        metrics = site.client.get("/metrics").text
        assert 'headrace_queue_consumers{topic="orders"} 3\n' in metrics
        assert 'headrace_group_important{topic="orders",group="billing"} 1\n' in metrics
        assert "queue-consumer-" not in metrics


def test_a_consume_of_a_waiting_message_is_one_transaction_on_one_connection(shared_url: str) -> None:
    # Without maintenance, which has statements of its own.
    with Broker(open_store(shared_url)) as broker:
        broker.create_topic("orders", partitions=3)
        for number in range(30):
            broker.publish("orders", text_batch(f"{number}"))
        consumer = broker.registrations.register_consumer("orders")
        for _ in range(6):
            assert broker.registrations.consume("orders", consumer) is not None
        with statements_of(broker) as statements:
            for _ in range(9):
                assert broker.registrations.consume("orders", consumer) is not None
        assert len(statements) == 9, statements
        assert all(statement.startswith("UPDATE all_consumers") for statement in statements)

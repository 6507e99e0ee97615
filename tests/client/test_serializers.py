"""Serializers: objects in, the same objects out; what does not fit is refused, or handled as the reader asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

from headrace.aio import AsyncClient
from headrace.client import Client
from headrace.core.errors import InvalidInput, InvalidMessage, Undecodable
from headrace.testing import embedded

PATIENCE_SECONDS = 60.0


class Order(msgspec.Struct):
    user: str
    cents: int
    at: datetime


class Sale(pydantic.BaseModel):
    user: str
    cents: int


@pytest.fixture
def client() -> Iterator[Client]:
    with embedded() as made:
        made.create_topic("orders")
        yield made


def read_all(client: Client, count: int, **settings: Any) -> list[tuple[Any, Any]]:
    with client.consumer("orders", **settings) as consumer:
        return [(message.key, message.value) for message in islice(consumer.messages(PATIENCE_SECONDS), count)]


ORDER = Order("ann", 4200, datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("serializer", "value", "stored", "kind"),
    [
        ("text", "dreißig", "dreißig".encode(), None),
        ("json", {"cents": 1, "tags": ["a"]}, b'{"cents":1,"tags":["a"]}', None),
        ("json", None, None, None),
        ("msgspec", ORDER, b'{"user":"ann","cents":4200,"at":"2026-01-02T00:00:00Z"}', Order),
        ("pydantic", Sale(user="ann", cents=1), b'{"user":"ann","cents":1}', Sale),
    ],
)
def test_objects_come_back_as_they_were_sent(
    client: Client, serializer: Any, value: object, stored: bytes | None, kind: Any
) -> None:
    with client.producer("orders", serializer=serializer, key_serializer="text") as producer:
        producer.send(value, key="user-1")
        producer.send(value)
    assert client.read("orders").column("value").to_pylist() == [stored] * 2
    found = read_all(client, 2, serializer=serializer, key_serializer="text", value_type=kind)
    assert found == [("user-1", value), (None, value)]


def test_callables(client: Client) -> None:
    with client.producer("orders", serializer=lambda number: b"%d" % number) as producer:
        producer.send(7, key=b"k")
        producer.send_batch(pa.table({"value": [8, 9]}))
    assert read_all(client, 3, serializer=int) == [(b"k", 7), (None, 8), (None, 9)]


def test_a_column_that_holds_no_bytes_is_serialized(client: Client) -> None:
    rows = pa.table({"value": [{"cents": 1}, {"cents": 2}], "key": ["ann", None]})
    with client.producer("orders", serializer="json", key_serializer="text") as producer:
        producer.send_batch(rows)
        producer.send_batch(pa.table({"value": [b"bytes stay"]}))
    table = client.table("orders")
    assert table["value"].to_pylist() == [b'{"cents":1}', b'{"cents":2}', b"bytes stay"]
    assert table["key"].to_pylist() == [b"ann", None, None]


def test_what_cannot_be_serialized_is_refused_before_it_is_sent(client: Client) -> None:
    with client.producer("orders", serializer="json", key_serializer="text") as producer:
        with pytest.raises(InvalidMessage, match="value is a object: the serializer 'json' cannot take it"):
            producer.send(object())
        with pytest.raises(InvalidMessage, match="key is a int: the serializer 'text' cannot take it"):
            producer.send({}, key=7)
    with (
        client.producer("orders", serializer=str) as producer,  # type: ignore[arg-type]
        pytest.raises(InvalidMessage, match="value is a str: the serializer must return bytes"),
    ):
        producer.send(7)
    assert client.offsets("orders") == {0: (0, 0)}


def test_a_message_that_does_not_fit_is_handled_as_asked(client: Client) -> None:
    with client.producer("orders") as producer:
        producer.send_batch(pa.table({"value": [b'{"a":1}', b"not json", b'{"a":2}']}))
    found = []
    with client.consumer("orders", group="billing", serializer="json") as consumer:
        for _ in range(2):
            with pytest.raises(Undecodable, match=r"offset 1 of partition 0 .* cannot be decoded as 'json'"):
                found += [message.value for message in consumer.messages(PATIENCE_SECONDS)]
        consumer.commit()
        assert client.committed("orders", "billing") == {0: 1}
        consumer.seek({0: 2})
        found += [message.value for message in islice(consumer.messages(PATIENCE_SECONDS), 1)]
    assert found == [{"a": 2}]
    raw = read_all(client, 3, serializer="json", on_undecodable="raw")
    assert raw == [(None, {"a": 1}), (None, b"not json"), (None, {"a": 2})]
    with client.consumer("orders", serializer="json", on_undecodable="skip") as consumer:
        assert [message.value for message in islice(consumer, 2)] == [{"a": 1}, {"a": 2}]
        assert consumer.skipped == 1
        assert consumer.positions() == {0: 3}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"serializer": "xml"}, "serializer is 'xml': it must be one of 'text', 'json', 'msgspec', 'pydantic'"),
        ({"key_serializer": 7}, "key_serializer is 7: it must be one of"),
        ({"serializer": "msgspec"}, "value_type is missing: the serializer 'msgspec' needs the type to read"),
        ({"serializer": "json", "value_type": Order}, "value_type .* only the serializers msgspec and pydantic take"),
    ],
)
def test_a_wrong_serializer_is_named(client: Client, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        client.consumer("orders", **settings)
    if "type" not in told:
        with pytest.raises(InvalidInput, match=told):
            client.producer("orders", **settings)


def test_asyncio(client: Client) -> None:
    async def main() -> list[object]:
        wrapped = AsyncClient(client)
        async with wrapped.producer("orders", serializer="json") as producer:
            await producer.send({"a": 1})
        async with wrapped.consumer("orders", serializer="json") as consumer:
            async for message in consumer:
                return [message.value]
        return []

    assert asyncio.run(main()) == [{"a": 1}]

"""The package as a program sees it: what `headrace` exports, its types, what objects say of themselves.

`user_program` is a small typed program: mypy, which reads tests and examples in `make check`, judges its types in
strict mode, and here it is run.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any, assert_type, get_type_hints

import pytest

import headrace
from headrace import errors
from headrace.core import errors as core_errors
from headrace.errors import InvalidInput, InvalidMessage, TopicNotFound
from headrace.testing import embedded


@pytest.fixture
def client() -> Iterator[headrace.Client]:
    with embedded() as made:
        yield made


def user_program(client: headrace.Client) -> dict[bytes, int]:
    """What a user writes, with the types that a user relies on."""
    topic = client.create_topic("orders", partitions=2, retention_seconds=3_600, codecs=["raw", "zstd"])
    assert_type(topic, headrace.TopicDescription)
    assert_type(topic.settings, headrace.TopicSettings)
    options: headrace.TopicOptions = {"deduplication": "producer"}
    client.alter_topic("orders", **options)
    totals: dict[bytes, int] = {}
    with client.producer("orders", producer_id="till-7") as producer:
        assert_type(producer, headrace.Producer)
        sent = producer.send(b"3", key=b"loaf")
        assert_type(sent, Future[headrace.Receipt])
    assert_type(sent.result().offset, int | None)
    with client.consumer("orders", group="billing") as consumer:
        for message in consumer.messages(idle_seconds=60.0):
            assert_type(message, headrace.Message)
            totals[message.key or b"?"] = totals.get(message.key or b"?", 0) + int(message.value)
            break
        consumer.commit()
    assert_type(client.describe_group("orders", "billing"), headrace.GroupDescription)
    assert_type(client.offsets("orders"), dict[int, tuple[int, int]])
    try:
        client.describe_topic("nothing")
    except errors.TopicNotFound as error:
        assert_type(error, TopicNotFound)
    return totals


async def async_user_program(client: headrace.aio.AsyncClient) -> bytes:
    """The same for asyncio."""
    assert_type(await client.create_topic("visits", partitions=1, retention_bytes=None), headrace.TopicDescription)
    async with client.producer("visits") as producer:
        assert_type(producer, headrace.aio.AsyncProducer)
        assert_type(await producer.send(b"page"), headrace.Receipt)
    late = await client.producer("visits")
    assert_type(late, headrace.aio.AsyncProducer)
    await late.close()
    assert_type(await asyncio.create_task(client.list_topics()), list[str])
    async with client.follow("visits", start="earliest") as batches:
        assert_type(batches, headrace.aio.AsyncFollowing)
        async for batch in batches:
            return bytes(batch.column("value")[0].as_py())
    raise AssertionError("a topic is followed for ever")


def test_typed_program_runs(client: headrace.Client) -> None:
    assert user_program(client) == {b"loaf": 3}


def test_typed_program_for_asyncio_runs(client: headrace.Client) -> None:
    assert asyncio.run(async_user_program(headrace.aio.AsyncClient(client))) == b"page"


def test_consumer_for_asyncio_is_opened_by_async_with_and_by_await(client: headrace.Client) -> None:
    client.create_topic("t")

    async def use(client: headrace.aio.AsyncClient) -> list[str]:
        async with client.consumer("t") as consumer:
            said = [repr(consumer)]
        said.append(repr(consumer))
        opened = await client.consumer("t")
        async with opened as consumer:
            said.append(repr(consumer))
        return said

    reading = "<asyncio: <headrace.Consumer of topic 't' (reading partitions [0])>>"
    closed = "<asyncio: <headrace.Consumer of topic 't' (closed)>>"
    assert asyncio.run(use(headrace.aio.AsyncClient(client))) == [reading, closed, reading]


def test_failure_to_open_is_raised_by_async_with(client: headrace.Client) -> None:
    async def use(client: headrace.aio.AsyncClient) -> None:
        async with client.producer("nothing"):
            raise AssertionError("it was opened")

    with pytest.raises(TopicNotFound):
        asyncio.run(use(headrace.aio.AsyncClient(client)))


@pytest.mark.parametrize("name", headrace.__all__)
def test_everything_exported_exists(name: str) -> None:
    assert getattr(headrace, name) is not None
    assert name in dir(headrace)


def test_what_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headrace.nothing  # type: ignore[attr-defined]


def test_errors_are_those_of_the_core() -> None:
    assert headrace.errors.HeadraceError is headrace.HeadraceError is core_errors.HeadraceError
    for error in core_errors.all_errors():
        assert getattr(errors, error.__name__) is error


def test_version_is_that_of_the_package() -> None:
    assert headrace.__version__ == version("headrace")


def test_package_says_that_it_has_types() -> None:
    assert (Path(headrace.__file__).parent / "py.typed").exists()


def test_import_loads_nothing_heavy() -> None:
    heavy = "{'pyarrow', 'numpy', 'msgspec', 'headrace.core', 'headrace.client', 'importlib.metadata'}"
    code = f"import sys, headrace; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_connecting_loads_no_server() -> None:
    heavy = "{'headrace.broker', 'litestar', 'uvicorn', 'sqlalchemy', 'headrace.protocols', 'typer', 'httpx'}"
    code = (
        f"import sys, headrace; headrace.connect('headrace://127.0.0.1:1'); print(sorted({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


PUBLIC = [
    headrace.Broker,
    headrace.Client,
    headrace.Producer,
    headrace.Consumer,
    headrace.Following,
    headrace.aio.AsyncClient,
    headrace.aio.AsyncProducer,
    headrace.aio.AsyncConsumer,
    headrace.aio.AsyncFollowing,
    headrace.aio.AsyncTransaction,
]


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_no_public_signature_says_any(kind: type) -> None:
    methods = {name: method for name, method in inspect.getmembers(kind, callable) if not name.startswith("_")}
    assert methods
    for name, method in methods.items():
        plain = inspect.unwrap(method)
        for field, hint in get_type_hints(plain).items():
            assert hint is not Any, f"{kind.__name__}.{name}: {field}"
        said = [field.annotation for field in inspect.signature(plain).parameters.values()]
        assert "Any" not in said, f"{kind.__name__}.{name}: {said}"


def test_options_of_a_topic_are_its_settings() -> None:
    assert list(headrace.TopicOptions.__annotations__) == list(headrace.TopicSettings.__struct_fields__)


def test_wrong_option_is_refused_by_name(client: headrace.Client) -> None:
    with pytest.raises(InvalidInput, match="'retention'"):
        client.create_topic("t", retention=1)  # type: ignore[call-arg]
    with headrace.Broker.open("memory:") as broker, pytest.raises(InvalidInput, match="'retention'"):
        broker.create_topic("t", retention=1)  # type: ignore[call-arg]


def test_objects_say_what_they_are(client: headrace.Client) -> None:
    client.create_topic("orders", partitions=2)
    assert repr(client) == "<headrace.Client of a broker in this process>"
    with client.producer("orders", producer_id="till-7") as producer:
        assert repr(producer) == "<headrace.Producer of topic 'orders' with producer id 'till-7'>"
    assert repr(producer) == "<headrace.Producer of topic 'orders' with producer id 'till-7' (closed)>"
    with client.producer("orders") as producer:
        assert repr(producer) == "<headrace.Producer of topic 'orders'>"
    with client.consumer("orders", group="billing") as consumer:
        assert repr(consumer) == "<headrace.Consumer of topic 'orders' in group 'billing' (reading partitions [0, 1])>"
    with client.follow("orders") as batches:
        assert repr(batches) == "<headrace.Following of topic 'orders'>"
    assert repr(batches) == "<headrace.Following of topic 'orders' (closed)>"
    client.close()
    assert repr(client) == "<headrace.Client of a broker in this process (closed)>"


def test_client_shows_its_servers_and_never_its_token() -> None:
    with headrace.connect("headrace://one:7071,two:7072", token="hr_secret") as client:
        assert repr(client) == "<headrace.Client of headrace://one:7071,headrace://two:7072>"


def test_connect_takes_the_url_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    with headrace.connect() as client:
        assert "headrace://127.0.0.1:7071" in repr(client)
    monkeypatch.setenv("HEADRACE_URL", "headrace+tls://broker.example:7099")
    with headrace.connect() as client:
        assert "headrace+tls://broker.example:7099" in repr(client)
    with headrace.connect("headrace://other:1") as client:
        assert "headrace://other:1" in repr(client)
    assert "broker.example" in repr(headrace.aio.connect())


def test_url_of_the_environment_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", "http://127.0.0.1:7070")
    with pytest.raises(InvalidInput, match=r"HEADRACE_URL.*http://127.0.0.1:7070.*headrace://HOST:PORT"):
        headrace.connect()


def test_text_is_refused_with_the_cure(client: headrace.Client) -> None:
    client.create_topic("t")
    with client.producer("t") as producer:
        with pytest.raises(InvalidMessage, match=r"bytes: send value.encode\(\), or open .* with serializer='text'"):
            producer.send("one loaf")
        with pytest.raises(InvalidMessage, match=r"send key.encode\(\), or open .* with key_serializer='text'"):
            producer.send(b"one loaf", key="user-1")
        with pytest.raises(InvalidMessage, match=r"it must be bytes: open the producer with serializer='json'"):
            producer.send({"amount": 7})

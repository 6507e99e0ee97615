"""Tracing over real sockets, with the in-memory exporter of the SDK: one trace from the producer to the consumer."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headrace
from headrace import Client, tracing
from headrace.aio import AsyncClient
from headrace.core.errors import HeadraceError
from headrace.core.messages import ATTRIBUTES
from headrace.protocols.flight.server import FlightServer
from tests.broker.background import eventually
from tests.protocols.http.site import Site, create_topic
from tests.server_process import ServerProcess

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Tracing is on, and this is where spans go."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.enable(provider)
    yield exporter
    tracing.disable()
    provider.shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("traced")) as running:
        yield running


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[Client]:
    served = FlightServer(site.broker, site.access, "grpc+tcp://127.0.0.1:0")
    with headrace.connect(f"headrace://127.0.0.1:{served.port}", timeout_seconds=60.0) as made:
        yield made
    assert served.stop(60.0)


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    client.create_topic(name, message_bytes_max=200)
    return name


def named(spans: InMemorySpanExporter, operation: str, count: int = 1) -> list[ReadableSpan]:
    """The spans of an operation, once there are so many: those of the server end in threads of their own."""

    def found() -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if span.name.startswith(f"{operation} ")]

    eventually(lambda: len(found()) >= count)
    return found()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def test_one_trace_goes_from_the_producer_through_the_server_to_the_consumer(
    client: Client, topic: str, spans: InMemorySpanExporter
) -> None:
    with client.producer(topic) as producer:
        producer.send(b"a", attributes={"kind": b"sale"}).result(60)
    with client.consumer(topic, group="billing") as consumer:
        message = next(consumer.messages())
    (send,), (publish,) = named(spans, "send"), named(spans, "publish")
    assert trace_of(publish) == trace_of(send)
    assert publish.parent is not None and send.context is not None
    assert publish.parent.span_id == send.context.span_id
    assert publish.kind == trace.SpanKind.SERVER and send.kind == trace.SpanKind.PRODUCER
    receive, fetch = named(spans, "receive")[-1], named(spans, "fetch")[-1]
    for span in (receive, fetch):
        assert [link.context.trace_id for link in span.links] == [trace_of(send)]
    assert receive.attributes is not None
    assert dict(receive.attributes) == {
        "messaging.system": "headrace",
        "messaging.operation.name": "receive",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": "billing",
        "messaging.batch.message_count": 1,
    }
    assert message.attributes is not None and message.attributes["kind"] == b"sale"
    context = tracing.context_of(message)
    assert trace.get_current_span(context).get_span_context().trace_id == trace_of(send)


def test_the_span_of_the_program_is_the_parent(client: Client, topic: str, spans: InMemorySpanExporter) -> None:
    tracer = TracerProvider().get_tracer("program")
    with client.producer(topic) as producer, tracer.start_as_current_span("order") as order:
        producer.send(b"a")
        producer.send_batch(pa.record_batch({"value": [b"b", b"c"]}))
    assert [trace_of(span) for span in named(spans, "send", 2)] == [order.get_span_context().trace_id] * 2
    contexts = [dict(row["attributes"])["traceparent"] for row in client.read(topic).to_pylist()]
    assert len(contexts) == 3 and len(set(contexts)) == 2, "those of a batch share one"


def test_the_span_of_a_coroutine_is_the_parent_too(client: Client, topic: str, spans: InMemorySpanExporter) -> None:
    tracer = TracerProvider().get_tracer("program")

    async def send() -> int:
        async with AsyncClient(client).producer(topic) as producer:
            with tracer.start_as_current_span("order") as order:
                await producer.send(b"a")
                await producer.send_batch(pa.record_batch({"value": [b"b"]}))
                return int(order.get_span_context().trace_id)

    trace_id = asyncio.run(send())
    assert [trace_of(span) for span in named(spans, "send", 2)] == [trace_id] * 2


def test_a_context_of_the_program_itself_is_kept(client: Client, topic: str, spans: InMemorySpanExporter) -> None:
    own = {"traceparent": PARENT.encode()}
    rows = {"value": [b"b", b"c"], "attributes": pa.array([list(own.items()), None], ATTRIBUTES)}
    with client.producer(topic) as producer:
        producer.send(b"a", attributes=own)
        producer.flush()
        producer.send_batch(pa.record_batch(rows))
    found = [dict(row["attributes"])["traceparent"].decode() for row in client.read(topic).to_pylist()]
    assert found[:2] == [PARENT, PARENT] and found[2] != PARENT
    assert f"{trace_of(named(spans, 'send', 2)[0]):032x}" in PARENT


def test_a_message_that_would_be_too_large_goes_without_a_context(
    client: Client, topic: str, spans: InMemorySpanExporter
) -> None:
    with client.producer(topic) as producer:
        assert producer.send(b"x" * 200).result(60).status == "written"
        producer.send_batch(pa.record_batch({"value": [b"x" * 200, b"y"]}))
    assert client.read(topic).column("attributes").null_count == 3
    assert len(named(spans, "send", 2)) == 2


def test_a_failed_send_ends_its_span_with_the_error(client: Client, topic: str, spans: InMemorySpanExporter) -> None:
    producer = client.producer(topic)
    producer.close()
    with pytest.raises(HeadraceError):
        producer.send(b"a")
    with pytest.raises(HeadraceError):
        producer.send_batch(pa.record_batch({"value": [b"a"]}))
    for span in named(spans, "send", 2):
        assert span.status.status_code == trace.StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]


def test_a_refused_batch_is_still_an_error_of_the_producer(
    client: Client, topic: str, spans: InMemorySpanExporter
) -> None:
    """Who looks at the outcome for a span does not take it away from `flush`."""
    with pytest.raises(HeadraceError, match="partition"), client.producer(topic) as producer:
        producer.submit_batch(pa.record_batch({"value": [b"a"], "partition": [99]}))
        producer.flush()
    (span,) = named(spans, "send")
    assert span.status.status_code == trace.StatusCode.ERROR


def test_http_callers_continue_their_trace_by_a_header(site: Site, spans: InMemorySpanExporter) -> None:
    create_topic(site.client, "over-http")
    body, path = {"messages": [{"value": "a"}]}, "/v1/topics/over-http"
    site.client.post(f"{path}/messages", json=body, headers={"traceparent": PARENT}).raise_for_status()
    site.client.get(f"{path}/partitions/0/messages?offset=0", headers={"traceparent": PARENT}).raise_for_status()
    for span in (*named(spans, "publish"), *named(spans, "fetch")):
        assert f"{trace_of(span):032x}" in PARENT
    fetched = site.client.get(f"{path}/partitions/0/messages?offset=0").json()["messages"]
    assert fetched[0]["attributes"] == {"traceparent": PARENT}, "so that consumers continue it"
    longer = "01" + PARENT[2:] + "-" + "x" * 1_000
    site.client.post(f"{path}/messages", json=body, headers={"traceparent": longer}).raise_for_status()
    last = site.client.get(f"{path}/partitions/0/messages?offset=1").json()["messages"]
    assert "attributes" not in last[0]
    failed = site.client.post("/v1/topics/nowhere/messages", json=body)
    assert failed.status_code == 404
    assert named(spans, "publish", 3)[-1].status.status_code == trace.StatusCode.ERROR


@pytest.mark.parametrize("given", [b"", b"nonsense", b"\xff", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00"])
def test_a_context_that_is_none_is_ignored(given: bytes, spans: InMemorySpanExporter) -> None:
    assert tracing.context_of({"traceparent": given}) is None
    batch = pa.record_batch({"value": [b"a"], "attributes": pa.array([[("traceparent", given)]], ATTRIBUTES)})
    with tracing.active.publishing("t", batch):  # type: ignore[union-attr]
        pass
    (span,) = named(spans, "publish")
    assert span.parent is None and not span.links


def test_attributes_in_another_form_are_sent_as_they_are() -> None:
    numbers = pa.record_batch({"value": [b"a"], "attributes": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))})
    for batch in (numbers, pa.record_batch({"value": [b"a"], "attributes": ["text"]})):
        assert tracing.with_context(batch, b"context", 1_000) is batch
        assert tracing.contexts_in(batch) == []
    strange = pa.record_batch({"value": pa.array([[1]], pa.list_(pa.int64()))})
    assert tracing.with_context(strange, b"context", 10) is strange


def test_messages_have_their_contexts_also_in_slices() -> None:
    rows = [None, [("x", b"1")], [("traceparent", b"own"), ("y", b"2")], []]
    batch = pa.record_batch({"value": [b"a"] * 4, "attributes": pa.array(rows, ATTRIBUTES)})
    new = ("traceparent", b"new")
    expected = [[new], [("x", b"1"), new], rows[2], [new]]
    for start in range(4):
        for length in range(1, 5 - start):
            traced = tracing.with_context(batch.slice(start, length), b"new", 1_000)
            traced.validate(full=True)
            assert traced.column("attributes").to_pylist() == expected[start : start + length]
    assert tracing.contexts_in(tracing.with_context(batch, b"new", 1_000)) == [b"new", b"own"]
    assert tracing.contexts_in(batch.slice(0, 0)) == []


class Collector(ThreadingHTTPServer):
    """Takes what an exporter of OTLP sends."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Requests)
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Requests(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_sends_its_spans_to_a_collector(tmp_path: Path) -> None:
    with closing(Collector()) as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
        server = ServerProcess(f"file:{tmp_path}", "--set", "tracing=true", variables=variables)
        try:
            with headrace.connect(server.url) as client:
                client.create_topic("orders")
                with client.producer("orders") as producer:
                    producer.send(b"a", attributes={"traceparent": PARENT.encode()})
            server.stop()
        finally:
            server.close()
    body = b"".join(collector.bodies)
    assert b"publish orders" in body and bytes.fromhex(PARENT.split("-")[1]) in body and b"headrace" in body


def test_nothing_of_opentelemetry_is_imported_while_tracing_is_off(tmp_path: Path) -> None:
    assert not tracing.is_enabled() and tracing.active is None
    program = """
import sys, headrace
from headrace.testing import embedded
with embedded() as client:
    client.create_topic("t")
    with client.producer("t") as producer:
        producer.send(b"a")
    assert client.read("t").column("attributes").null_count == 1
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_without_opentelemetry_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(HeadraceError, match=r"pip install 'headrace\[tracing\]'"):
        tracing.enable()
    assert not tracing.is_enabled()

"""Traces of messages with OpenTelemetry: publish and fetch spans, and the trace context in the messages themselves.

    pip install "headrace[tracing]"
    headrace.tracing.enable()                       uses the tracer provider of the program
    context = headrace.tracing.context_of(message)  to start a span that continues the trace of a message

A message carries the W3C trace context of the span that sent it in its attribute `traceparent`, next to the
application's own attributes, so it goes through topics, Spark and pipelines like any attribute. One that the program
has set itself is kept. A message that would become too large is sent without it.

    producer: `send orders`      one span for each message, or for each batch, until its acknowledgement
    server:   `publish orders`   one for each commit; its parent is the context of the first message, others are links
    server:   `fetch orders`     one for each batch that a reader gets, with links to its messages
    consumer: `receive orders`   one for each batch that is returned, with links to its messages

Nothing of OpenTelemetry is imported before `enable`; while tracing is off, all that it costs is a look at `active`. The
switch is of the process, as the provider of OpenTelemetry is. A failure of tracing never fails a call. Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import InvalidInput
from headrace.core.messages import ATTRIBUTES, message_sizes
from headrace.extras import missing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

__all__ = ["TRACEPARENT", "context_of", "disable", "enable", "is_enabled"]

TRACEPARENT: Final = "traceparent"
# The bytes that the attribute adds to a message: its name, and 00-<32 digits>-<16 digits>-<2 digits>.
CONTEXT_BYTES: Final = len(TRACEPARENT) + 55
# A batch may have thousands of messages: at most this many distinct contexts become links of its span.
_LINKS_MAX: Final = 32


class _Future(Protocol):
    """The future of something sent; looking at `failure` does not count as handling it."""

    @property
    def failure(self) -> BaseException | None: ...

    def add_done_callback(self, fn: Callable[[Any], object]) -> None: ...


Sent = TypeVar("Sent", bound=_Future)


class Tracing:
    """Spans of Headrace. Created by `enable`."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise InvalidInput("tracing", "on", missing("tracing", error)) from None
        self._trace = trace
        self._format = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("headrace", version("headrace"), provider)

    # The client

    def start_send(
        self, topic: str, attributes: Mapping[str, bytes | None] | None
    ) -> tuple[Span, dict[str, bytes | None]]:
        """A span for one message, and its attributes with the context of the span, or with the one it had."""
        parent = self._context(attributes or {})
        span = self._start("send", topic, self._trace.SpanKind.PRODUCER, parent=parent)
        return span, {**self._carried(span), **(attributes or {})}

    def start_send_batch(
        self, topic: str, batch: pa.RecordBatch, message_bytes_max: int
    ) -> tuple[Span, pa.RecordBatch]:
        """A span for a batch, and the batch with the context of the span in each message that has none."""
        kind = self._trace.SpanKind.PRODUCER
        span = self._start("send", topic, kind, links=self._links(batch), messages=batch.num_rows)
        return span, with_context(batch, self._carried(span).get(TRACEPARENT, b""), message_bytes_max)

    @contextmanager
    def sending(self, span: Span) -> Iterator[Callable[[Sent], Sent]]:
        """End a span with the future that is made in the block, or with the error that prevents it."""

        def sent(future: Sent) -> Sent:
            future.add_done_callback(lambda _: self.end(span, future.failure))
            return future

        try:
            yield sent
        except BaseException as error:
            self.end(span, error)
            raise

    def end(self, span: Span, error: BaseException | None) -> None:
        """End a span, with the error that it ended with."""
        if error is not None:
            span.record_exception(error)
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()

    def received(self, topic: str, group: str | None, batch: pa.RecordBatch, started_ns: int) -> None:
        """Record that a consumer got a batch."""
        more = {} if group is None else {"messaging.consumer.group.name": group}
        kind = self._trace.SpanKind.CONSUMER
        links, count = self._links(batch), batch.num_rows
        self._start("receive", topic, kind, links=links, messages=count, start_ns=started_ns, more=more).end()

    # The server

    @contextmanager
    def publishing(self, topic: str, batch: pa.RecordBatch) -> Iterator[None]:
        """A span around the commit of a batch; its parent is the context of the first message."""
        links, parent = self._links(batch), None
        if links:
            spanned = self._trace.NonRecordingSpan(links[0].context)
            parent, links = self._trace.set_span_in_context(spanned), links[1:]
        span = self._start(
            "publish", topic, self._trace.SpanKind.SERVER, parent=parent, links=links, messages=batch.num_rows
        )
        try:
            yield
        except BaseException as error:
            self.end(span, error)
            raise
        span.end()

    def fetched(
        self, topic: str, batch: pa.RecordBatch, started_ns: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Record that a batch was read for a caller."""
        parent = self._context({TRACEPARENT: headers.get(TRACEPARENT, "").encode()}) if headers else None
        kind, links = self._trace.SpanKind.SERVER, self._links(batch)
        self._start(
            "fetch", topic, kind, parent=parent, links=links, messages=batch.num_rows, start_ns=started_ns
        ).end()

    def context_in(self, headers: Mapping[str, str]) -> bytes | None:
        """The trace context in the headers of a request, if there is a valid one."""
        given = headers.get(TRACEPARENT, "").encode()
        # A later version of the format may be longer, and would take more room than a message has for it.
        is_usual = len(given) == CONTEXT_BYTES - len(TRACEPARENT)
        return given if is_usual and self._context({TRACEPARENT: given}) is not None else None

    def tracing_fetches(self, topic: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a stream, each recorded once it was taken."""
        for batch in batches:
            started_ns = time.time_ns()
            yield batch
            self.fetched(topic, batch, started_ns)

    def context_of(self, attributes: Mapping[str, bytes | None]) -> Context | None:
        """The context in the attributes of a message, if it has a valid one."""
        return self._context(attributes)

    def _start(
        self,
        operation: str,
        topic: str,
        kind: SpanKind,
        *,
        parent: Context | None = None,
        links: list[Link] | None = None,
        messages: int | None = None,
        start_ns: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Span:
        described: dict[str, Any] = {
            "messaging.system": "headrace",
            "messaging.operation.name": operation,
            "messaging.destination.name": topic,
            **(more or {}),
        }
        if messages is not None:
            described["messaging.batch.message_count"] = messages
        return self._tracer.start_span(
            f"{operation} {topic}", parent, kind, attributes=described, links=links, start_time=start_ns
        )

    def _carried(self, span: Span) -> dict[str, bytes]:
        carrier: dict[str, str] = {}
        self._format.inject(carrier, self._trace.set_span_in_context(span))
        # A provider that does nothing gives spans without a context.
        return {name: carrier[name].encode() for name in (TRACEPARENT,) if name in carrier}

    def _context(self, attributes: Mapping[str, bytes | None]) -> Context | None:
        given = attributes.get(TRACEPARENT)
        if not given:
            return None
        found = self._format.extract({TRACEPARENT: bytes(given).decode("ascii", "replace")})
        return found if self._trace.get_current_span(found).get_span_context().is_valid else None

    def _links(self, batch: pa.RecordBatch) -> list[Link]:
        """The distinct contexts of a batch as links."""
        links = []
        for value in contexts_in(batch)[:_LINKS_MAX]:
            context = self._context({TRACEPARENT: value})
            if context is not None:
                links.append(self._trace.Link(self._trace.get_current_span(context).get_span_context()))
        return links


# What is on now; None while tracing is off.
active: Tracing | None = None


def enable(provider: TracerProvider | None = None) -> None:
    """Trace what this process publishes and reads, with a tracer provider or the global one of OpenTelemetry."""
    global active
    active = Tracing(provider)


def disable() -> None:
    """Trace nothing more."""
    global active
    active = None


def is_enabled() -> bool:
    """Whether this process traces."""
    return active is not None


def context_of(message: Any) -> Context | None:
    """The trace context that a message carries, to start a span of your own in it; None without one.

    `message` is a message of a consumer, or its attributes. Works while tracing is off too.
    """
    attributes = message if isinstance(message, Mapping) else message.attributes
    return (active or Tracing()).context_of(attributes or {})


def contexts_in(batch: pa.RecordBatch) -> list[bytes]:
    """The distinct trace contexts of the messages of a batch, in the order they appear."""
    attributes = _attributes_of(batch)
    if attributes is None or not len(attributes):
        return []
    rows, (keys, items) = np.asarray(attributes.offsets), (attributes.keys, attributes.items)
    keys, items = keys.slice(rows[0], rows[-1] - rows[0]), items.slice(rows[0], rows[-1] - rows[0])
    found: list[bytes] = pc.unique(items.filter(pc.equal(keys, TRACEPARENT)).drop_null()).to_pylist()
    return found


def with_context(batch: pa.RecordBatch, context: bytes, message_bytes_max: int) -> pa.RecordBatch:
    """The batch with a trace context in each message that has none; as it was if a message would be too large."""
    rows = batch.num_rows
    if not rows or not context or not _has_room(batch, message_bytes_max):
        return batch
    if "attributes" not in batch.schema.names:
        names, values = pa.repeat(pa.scalar(TRACEPARENT), rows), pa.repeat(pa.scalar(context, pa.binary()), rows)
        return batch.append_column("attributes", _map(np.arange(rows + 1), names, values))
    attributes = _attributes_of(batch)
    if attributes is None:
        return batch
    place = batch.schema.get_field_index("attributes")
    return batch.set_column(place, "attributes", _added(attributes, context))


def _has_room(batch: pa.RecordBatch, message_bytes_max: int) -> bool:
    """Whether a context can be added to every message."""
    if batch.nbytes + CONTEXT_BYTES <= message_bytes_max:
        return True
    columns = {name: batch.column(name) for name in ("value", "key", "attributes") if name in batch.schema.names}
    try:
        sizes = message_sizes(columns["value"], columns.get("key"), columns.get("attributes"))
    except (pa.ArrowException, TypeError, ValueError):
        # Of columns in another form than messages are stored in; the broker will convert or refuse them.
        return False
    return int(sizes.max()) + CONTEXT_BYTES <= message_bytes_max


def _added(attributes: pa.MapArray, context: bytes) -> pa.MapArray:
    """The maps with one more entry in each that has no context: gathered by index, without Python per message."""
    bounds = np.asarray(attributes.offsets).astype(np.int64)
    starts, counts = bounds[:-1], np.diff(bounds)
    counts[np.asarray(pc.is_null(attributes))] = 0
    keys, items = attributes.keys, attributes.items
    carriers = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(keys, TRACEPARENT), False)))
    # How many contexts are before each entry, so that the difference says whether a row has any.
    before = np.searchsorted(carriers, bounds)
    lacks = (np.diff(before) == 0) | (counts == 0)
    sizes = counts + lacks
    ends = np.cumsum(sizes)
    # Every entry of the result is one of the old ones, or the new one, which stands behind them.
    index = np.full(int(ends[-1]), len(keys), np.int64)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    index[np.repeat(ends - sizes, counts) + within] = np.repeat(starts, counts) + within
    names = pa.concat_arrays([keys, pa.array([TRACEPARENT])]).take(pa.array(index))
    values = pa.concat_arrays([items, pa.array([context], pa.binary())]).take(pa.array(index))
    return _map(np.concatenate([[0], ends]), names, values)


def _attributes_of(batch: pa.RecordBatch) -> pa.MapArray | None:
    """The attributes of a batch; None without any, or if they are in another form, which is sent as it is."""
    if "attributes" not in batch.schema.names:
        return None
    column = batch.column("attributes")
    if not pa.types.is_map(column.type):
        return None
    is_usual = pa.types.is_string(column.type.key_type) and pa.types.is_binary(column.type.item_type)
    return column if is_usual else None


def _map(bounds: Any, names: pa.Array, values: pa.Array) -> pa.MapArray:
    return pa.MapArray.from_arrays(pa.array(bounds.astype(np.int32)), names, values, type=ATTRIBUTES)

"""Publishing and fetching over HTTP, as JSON or as Arrow."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import pyarrow as pa
from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from headrace import tracing
from headrace.core.errors import InvalidInput
from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_DEFAULT
from headrace.core.names import composed
from headrace.core.publish.receipts import Receipts
from headrace.edge.access import Leases
from headrace.edge.arrow import Stream
from headrace.edge.bridge import Bridge
from headrace.edge.event_loop.long_poll import LongPoll, LoopWakeups
from headrace.protocols.http.disconnects import attend
from headrace.protocols.http.formats import (
    ARROW,
    JSON,
    MessageIn,
    Published,
    PublishIn,
    ReceiptOut,
    encode_fetched,
    encode_receipts,
    publish_of_json,
    stream_of,
)
from headrace.protocols.http.middleware.access import lease_of, principal_of
from headrace.protocols.http.middleware.limits import allow_seconds
from headrace.protocols.http.openapi.document import MESSAGE, Docs
from headrace.protocols.http.requests.negotiation import body_type, wants_arrow
from headrace.protocols.http.requests.parameters import (
    EncodingParameter,
    FirstOffset,
    FirstTime,
    MaxBytes,
    MaxMessages,
    WaitSeconds,
)
from headrace.protocols.http.requests.plain_bodies import (
    PLAIN,
    Common,
    GroupIdParameter,
    KeyParameter,
    PartitionParameter,
    ProducerParameter,
    SeqnoParameter,
    batch_of_plain,
)
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import off_loop
from headrace.protocols.http.settings import HttpSettings
from headrace.wire.json import Encoding, Messages

# Approximate size of a receipt as JSON.
_RECEIPT_BYTES = 48
_RECEIPTS = Published([ReceiptOut(0, 41, "written"), ReceiptOut(1, 7, "written")])
_MESSAGES_IN = PublishIn(
    [
        # Without a producer id and seqno: sent twice from the docs page, the second would be dropped as a duplicate.
        MessageIn('{"account": 7, "cents": -1250}', key="account-7"),
        MessageIn('{"account": 9, "cents": 400}', key="account-9"),
    ]
)


@post(
    "/topics/{topic:str}/messages",
    status_code=200,
    opt={
        "operation": "publish",
        "bodies": (JSON, ARROW, *PLAIN),
        "docs": Docs(
            body=PublishIn,
            given=_MESSAGES_IN,
            takes_arrow=True,
            takes_plain=PLAIN,
            answer=Published,
            example=_RECEIPTS,
            answers_arrow=True,
            errors=(404, 406),
        ),
    },
    tags=["messages"],
    summary="Publish messages",
)
async def publish(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    bridge: NamedDependency[Bridge],
    http_settings: NamedDependency[HttpSettings],
    key: KeyParameter = None,
    partition: PartitionParameter = None,
    producer_id: ProducerParameter = None,
    message_group_id: GroupIdParameter = None,
    seqno: SeqnoParameter = None,
) -> Response[Any]:
    """Publish messages in one commit. Returns a receipt for each, in the order sent, once they are durable.

    A body of `application/octet-stream` is one message, each line of `text/plain` and of `application/x-ndjson` is one.
    """
    is_arrow, kind = wants_arrow(request), body_type(request)
    common = Common(key, partition, producer_id, message_group_id, seqno)
    body, bytes_max = await request.body(), http_settings.request_bytes_max
    principal, name = principal_of(request), unquoted(topic)
    commit_key = None
    if kind in PLAIN:
        batch = await off_loop(len(body), batch_of_plain, body, kind, common)
    elif kind == ARROW:
        common.check_unused(kind)
        stream = await off_loop(len(body), Stream, body, bytes_max)
        # A small body may be large when it is decoded, so its claimed size decides where that runs.
        batch = await off_loop(max(len(body), stream.claims.bytes), stream.batch)
        # The body itself is counted where it is read.
        principal.limits.publish_bytes.spend(principal.name, max(0, stream.decoded_bytes - len(body)))
        del stream
    else:
        common.check_unused(kind)
        batch, commit_key = await off_loop(len(body), publish_of_json, body)
    del body
    principal.require_producers("publish", name, batch)
    if commit_key is not None:
        principal.require("publish", name, producer=composed(commit_key.writer))
    active = tracing.active
    if active is not None and (context := active.context_in(request.headers)) is not None:
        limits = await bridge.call(bridge.broker.open_producer, name)
        batch = tracing.with_context(batch, context, limits.message_bytes_max)
    with nullcontext() if active is None else active.publishing(name, batch):
        receipts = await bridge.publish(name, batch, commit_key, principal.name)
    answer = await off_loop(len(receipts) * _RECEIPT_BYTES, _answered, receipts, is_arrow)
    return Response(answer, media_type=ARROW if is_arrow else JSON)


def _answered(receipts: Receipts, is_arrow: bool) -> bytes:
    return stream_of(receipts.to_arrow()) if is_arrow else encode_receipts(receipts)


@get(
    "/topics/{topic:str}/partitions/{partition:int}/messages",
    opt={
        "operation": "read",
        "docs": Docs(answer=Messages, example=Messages([MESSAGE], 42), answers_arrow=True, errors=(404, 406)),
    },
    tags=["messages"],
    summary="Fetch messages",
)
async def fetch(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    partition: FromPath[int],
    bridge: NamedDependency[Bridge],
    wakes: NamedDependency[LoopWakeups],
    leases: NamedDependency[Leases],
    offset: FirstOffset = None,
    time_us: FirstTime = None,
    max_messages: MaxMessages = FETCH_MESSAGES_DEFAULT,
    max_bytes: MaxBytes = FETCH_BYTES_DEFAULT,
    wait_seconds: WaitSeconds = 0.0,
    encoding: EncodingParameter = "text",
) -> Response[Any]:
    """Read messages of one partition, starting at an offset or a time. Waits for the first if there is none."""
    name, is_arrow = unquoted(topic), wants_arrow(request)
    if (offset is None) == (time_us is None):
        raise InvalidInput("offset", str(offset), "give either offset or time_us")
    if offset is None and time_us is not None:
        offset = await bridge.call(bridge.broker.offset_at, name, partition, time_us)
    assert offset is not None
    allow_seconds(request, wait_seconds)
    started_ns = time.time_ns()
    reader, at = await bridge.reader(name), {partition: offset}
    look = partial(bridge.broker.fetch, name, partition, offset, max_messages, max_bytes)
    poll = LongPoll(look, lambda batch: batch.num_rows > 0, lambda _: reader.is_behind(at))
    work = wakes.poll(poll, reader, wait_seconds, partition)
    if wait_seconds > 0:
        work = attend(request, work, principal_of(request), lease_of(request, name), leases)
    batch = await work
    if tracing.active is not None:
        tracing.active.fetched(name, batch, started_ns, request.headers)
    # In a thread: the answer may be large, and others wait for the event loop.
    body = await bridge.call(_encoded, batch, offset, encoding, is_arrow)
    return Response(body, media_type=ARROW if is_arrow else JSON)


def _encoded(batch: pa.RecordBatch, offset: int, encoding: Encoding, is_arrow: bool) -> bytes:
    return stream_of(batch) if is_arrow else encode_fetched(batch, offset, encoding)


HANDLERS = [publish, fetch]

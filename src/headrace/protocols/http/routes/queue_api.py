"""The PgQueue HTTP API, at the root of the server, as its clients use it.

Clients differ in their spelling, so every spelling is accepted: fields may be in the JSON body or in the query string,
with any method and content type. Every answer is JSON with a `status`; a failure has a reason, and is 400 if the
request is malformed and 500 if it cannot be done. Errors outside the protocol keep their HTTP status: 401 and 403
without the right, 405 for another method, 413 for a body that is too large.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
import pyarrow as pa
from litestar import Request, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.response.base import ASGIResponse

from headrace.broker.queue_api.numbered_clients import producer_id_of
from headrace.broker.queue_api.ordered_reader import Taken
from headrace.broker.queue_api.registrations import ANY_CONSUMER, group_name
from headrace.core.codecs import columns as codecs
from headrace.core.errors import (
    AccessDenied,
    GroupNotFound,
    HeadraceError,
    IdNotFound,
    InvalidInput,
    LimitExceeded,
    QuotaExceeded,
    TopicNotFound,
)
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.core.rights import Right
from headrace.edge.bridge import Bridge
from headrace.protocols.http.errors import (
    answer_http_exception,
    problem_of,
    retry_after_seconds,
    status_of,
)
from headrace.protocols.http.middleware.access import principal_of
from headrace.protocols.http.openapi.queue_api import described
from headrace.protocols.http.requests.queue_fields import (
    id_in,
    offset_in,
    partition_in,
    read_fields,
    topic_in,
    value_in,
    whole,
)
from headrace.protocols.http.requests.strict_json import off_loop

PATHS: Final = frozenset(
    {
        "/topics",
        "/consumer/register",
        "/producer/register",
        "/producer/produce",
        "/consumer/consume",
        "/size",
        "/status",
        "/login",
        "/consumer/set_offset",
        "/producer/client_size",
    }
)

logger = logging.getLogger(__name__)


_READING: Final[dict[str, str | int]] = {"topic": "orders", "consumer_id": 10_000_000_010}


@post(
    "/topics",
    opt={"operation": "create_topic", "checked_inside": True},
    summary="Create a topic (queue API)",
    operation_class=described({"message": "topic 'orders' was created"}, {"name": "orders"}),
    status_code=200,
)
async def create_topic(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Create a topic; fails if it already exists."""
    given = await read_fields(request)
    topic, partitions = topic_in(given), whole("partitions", given.partitions)
    principal_of(request).require("create_topic", topic)
    await bridge.call(bridge.broker.registrations.create_topic, topic, partitions)
    principal_of(request).record_changes()
    return _success(bridge.broker.registrations.settings.created_status, message=f"topic {topic!r} was created")


@get(
    "/topics",
    opt={"operation": "list_topics", "checked_inside": True},
    summary="List topics (queue API)",
    operation_class=described({"topics": ["orders"]}),
)
async def list_topics(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """List the topics on which the caller has any right."""
    caller = principal_of(request).caller
    names = await bridge.call(bridge.broker.list_topics)
    return _success(topics=[name for name in names if caller.may_see(name)])


@post(
    "/consumer/register",
    opt={"operation": "register_consumer", "checked_inside": True},
    summary="Register a consumer",
    operation_class=described({"consumer_id": 10000000010}, {"topic": "orders"}),
    status_code=200,
)
async def register_consumer(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Register a new consumer of a topic; it starts at the first message."""
    topic = topic_in(await read_fields(request))
    principal_of(request).require("register_consumer", topic, ANY_CONSUMER)
    return _success(consumer_id=await bridge.call(bridge.broker.registrations.register_consumer, topic))


@post(
    "/producer/register",
    opt={"operation": "register_producer", "checked_inside": True},
    summary="Register a producer",
    operation_class=described({"producer_id": 10000000011}, {"topic": "orders"}),
    status_code=200,
)
async def register_producer(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Register a new producer of a topic; the topic is created if it does not exist."""
    given = await read_fields(request)
    topic, partitions = topic_in(given), whole("partitions", given.partitions)
    registrations = bridge.broker.registrations
    await bridge.know(topic)
    principal_of(request).require("register_producer" if registrations.has_topic(topic) else "create_topic", topic)
    producer_id = await bridge.call(registrations.register_producer, topic, partitions)
    principal_of(request).record_changes()
    return _success(producer_id=producer_id)


@post(
    "/producer/produce",
    opt={"operation": "produce", "checked_inside": True},
    summary="Produce a message",
    operation_class=described({}, {"topic": "orders", "producer_id": 10000000011, "message": "hello"}),
    status_code=200,
)
async def produce(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Publish a message; it is durable when the answer arrives."""
    given = await read_fields(request)
    topic, producer_id = topic_in(given), id_in("producer_id", given.producer_id)
    value, partition = value_in(given), partition_in(given)
    principal_of(request).require("produce", topic)
    registrations = bridge.broker.registrations
    if not bridge.broker.knows_topic(topic):
        await bridge.know(topic)
    if not registrations.knows_producer(topic, producer_id):
        await bridge.call(registrations.check_producer, topic, producer_id)
    if given.prod_client is not None:
        # Its count is the seqno of a source, which others must not raise.
        principal_of(request).require("publish", topic, producer=producer_id_of(str(given.prod_client)))
        await bridge.publish_numbered(topic, str(given.prod_client), value, partition)
    elif partition is None:
        await bridge.publish_value(topic, value, principal_of(request).name)
    else:
        columns = [pa.array([value], pa.binary()), pa.array([partition], pa.int32())]
        await bridge.publish(
            topic, pa.RecordBatch.from_arrays(columns, ["value", "partition"]), account=principal_of(request).name
        )
    return _SUCCESS


@get(
    "/consumer/consume",
    opt={"operation": "consume", "checked_inside": True},
    summary="Consume a message",
    operation_class=described({"message": "hello", "log_message": "hello", "offset": 0}, _READING, in_query=True),
)
async def consume(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Get the next message of a consumer; fails if there is none. `offset` is its place in the topic, from 0."""
    given = await read_fields(request)
    topic, consumer_id = topic_in(given), id_in("consumer_id", given.consumer_id)
    principal_of(request).require("consume", topic, group_name(consumer_id))
    message = await bridge.call(bridge.broker.registrations.consume, topic, consumer_id)
    if message is None:
        why = f"nothing to read in topic {topic!r} for this consumer"
        return ASGIResponse(body=_failed(why), status_code=500)
    # A compressed value may be large when decompressed.
    size = len(message.value or b"") if message.codec is None else LOOP_BYTES_MAX + 1
    return await off_loop(size, _consumed, message)


@get(
    "/size",
    opt={"operation": "size", "checked_inside": True},
    summary="Count the unread messages of a consumer",
    operation_class=described({"size": 3}, _READING, in_query=True),
)
async def size(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Count the messages that a consumer has not read yet."""
    given = await read_fields(request)
    topic, consumer_id = topic_in(given), id_in("consumer_id", given.consumer_id)
    principal_of(request).require("size", topic, group_name(consumer_id))
    return _success(size=await bridge.call(bridge.broker.registrations.size, topic, consumer_id))


@post(
    "/consumer/set_offset",
    opt={"operation": "set_offset", "checked_inside": True},
    summary="Set the position of a consumer",
    operation_class=described({}, {"consumer_id": 10_000_000_010, "offset": -1}),
    status_code=200,
)
async def set_offset(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Continue after the message with this offset, the last one processed; -1 is before the first."""
    given = await read_fields(request)
    consumer_id, offset = id_in("consumer_id", given.consumer_id), offset_in(given)
    registrations, principal = bridge.broker.registrations, principal_of(request)
    topic = await bridge.call(registrations.topic_of, consumer_id)
    if not principal.caller.may_see(topic):
        # The error does not even reveal the name of the topic.
        raise IdNotFound("consumer", str(consumer_id)[:100], "no topic has a consumer with this id: register first")
    principal.require("set_offset", topic, group_name(consumer_id))
    await bridge.call(registrations.set_place, consumer_id, offset)
    return _SUCCESS


@get(
    "/status",
    opt={"operation": "status"},
    summary="Check that the server is running",
    operation_class=described({"message": "running"}),
)
async def status(request: Request[Any, Any, Any]) -> ASGIResponse:
    """Clients poll this at startup until it answers."""
    return _success(message="running")


@get(
    "/login",
    opt={"operation": "login", "checked_inside": True},
    summary="Check an id",
    operation_class=described({}, {"topic": "orders", "id": 10_000_000_010, "type": "consumer"}, in_query=True),
)
async def login(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Check whether an earlier id can be used again; if not, the failure has status 400."""
    given = await read_fields(request)
    topic, kind = topic_in(given), given.type
    if kind not in ("consumer", "producer"):
        raise InvalidInput("type", repr(kind)[:100], "it must be consumer or producer")
    registrations = bridge.broker.registrations
    identity = id_in("id", given.id)
    if kind == "consumer":
        principal_of(request).require("consume", topic, group_name(identity))
    else:
        principal_of(request).require("produce", topic)
    check = registrations.check_consumer if kind == "consumer" else registrations.check_producer
    try:
        await bridge.call(check, topic, identity)
    except (IdNotFound, TopicNotFound, GroupNotFound) as error:
        return ASGIResponse(body=_failed(str(error)), status_code=400)
    return _SUCCESS


@get(
    "/producer/client_size",
    opt={"operation": "client_size", "checked_inside": True},
    summary="Count the messages of a client",
    operation_class=described({"count": 3}, {"prod_client": "till-7"}, in_query=True),
)
async def client_size(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ASGIResponse:
    """Count the messages produced with this `prod_client`, in all topics that the caller may publish to."""
    given, caller = await read_fields(request), principal_of(request).caller
    if given.prod_client is None:
        raise InvalidInput("prod_client", "missing", "give the name of the client")
    names = await bridge.call(bridge.broker.list_topics)
    producer = producer_id_of(str(given.prod_client))
    topics = [name for name in names if caller.may(Right.PUBLISH, name, None, producer)]
    clients = bridge.broker.registrations.clients
    return _success(count=await bridge.call(clients.count, str(given.prod_client), topics))


# Answers


def _text(message: Taken) -> str | None:
    """The value of a message as text; other clients may publish bytes, also compressed, and null, which stays null."""
    value = message.value
    if value is None:
        return None
    if message.codec is not None:
        try:
            value = codecs.decode(pa.array([value], pa.binary()), pa.array([message.codec]))[0].as_py()
        except InvalidInput:
            logger.debug("a message cannot be decoded by its codec %r and is delivered as stored", message.codec)
    return value.decode(errors="replace")


def _consumed(message: Taken) -> ASGIResponse:
    text = _text(message)
    return _success(message=text, log_message=text, offset=message.place)


def _success(status_code: int = 200, **fields: Any) -> ASGIResponse:
    return ASGIResponse(body=msgspec.json.encode({"status": "success", **fields}), status_code=status_code)


_SUCCESS: Final = _success()


def _failed(why: str) -> bytes:
    return msgspec.json.encode({"status": "failure", "message": why})


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(_failed(why), status_code=status, media_type="application/json", headers=headers)


def _answer_headrace_error(request: Request[Any, Any, Any], error: HeadraceError) -> Response[bytes]:
    if isinstance(error, AccessDenied):
        status = status_of(error)
        return _refused(status, str(error), {"WWW-Authenticate": "Bearer"} if status == 401 else None)
    if isinstance(error, LimitExceeded | QuotaExceeded):
        if isinstance(error, QuotaExceeded):
            principal_of(request).count_refusal(error.setting)
        problem = problem_of(error)
        headers = {"Retry-After": str(retry_after_seconds(problem))} if problem.retry else None
        return _refused(problem.status, str(error), headers)
    return _refused(400 if isinstance(error, InvalidInput) else 500, str(error))


def _answer_http_exception(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    headers = {name: str(value) for name, value in (error.headers or {}).items()}
    return _refused(error.status_code, error.detail, headers)


def _answer_anything(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _refused(500, "unexpected error in the server; its log has the details")


def answer_wrong_method(request: Request[Any, Any, Any], error: MethodNotAllowedException) -> Response[Any]:
    """Answer in the format of this API on its paths: the framework rejects a wrong method before any handler."""
    if is_path(request.scope["path"]):
        return _answer_http_exception(request, error)
    return answer_http_exception(request, error)


def is_path(path: str) -> bool:
    """Whether a path belongs to this API, which has its own answer format."""
    return path.rstrip("/") in PATHS


def make_router() -> Router:
    """The routes, with failures in the format of this API."""
    return Router(
        "/",
        route_handlers=[
            create_topic,
            list_topics,
            register_consumer,
            register_producer,
            produce,
            consume,
            size,
            set_offset,
            status,
            login,
            client_size,
        ],
        exception_handlers={
            HeadraceError: _answer_headrace_error,
            HTTPException: _answer_http_exception,
            Exception: _answer_anything,
        },
    )

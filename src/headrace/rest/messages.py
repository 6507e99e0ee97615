"""Publishing and fetching over HTTP, as JSON or as Arrow."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import Parameter

from headrace.core.errors import InvalidInput
from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_DEFAULT
from headrace.core.planning import Receipts
from headrace.core.rights import Right
from headrace.rest.crossing import Crossing
from headrace.rest.formats import (
    ARROW,
    JSON,
    Encoding,
    Publish,
    batch_of_arrow,
    batch_of_json,
    commit_key_of,
    messages_of,
    published_of,
    stream_of,
)
from headrace.rest.paths import unquoted

_PUBLISH = msgspec.json.Decoder(Publish)


@post("/topics/{topic:str}/messages", opt={"right": Right.PUBLISH}, tags=["messages"], status_code=200)
async def publish(request: Request[Any, Any, Any], topic: str, crossing: Crossing) -> Response[Any]:
    """Publish messages in one commit: a receipt for each, in the order sent, once they are on the device."""
    body = await request.body()
    receipts = await _publish(request.headers.get("content-type", JSON), body, unquoted(topic), crossing)
    if wants_arrow(request):
        return Response(stream_of(receipts.to_arrow()), media_type=ARROW)
    return Response(published_of(receipts), media_type=JSON)


async def _publish(content_type: str, body: bytes, topic: str, crossing: Crossing) -> Receipts:
    if content_type.startswith(ARROW):
        return await crossing.publish(topic, batch_of_arrow(body))
    try:
        given = _PUBLISH.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidInput("body", f"{len(body)} bytes", f"it is not what is published: {error}") from None
    batch = batch_of_json(given)
    if given.commit_key is None:
        return await crossing.publish(topic, batch)
    return await crossing.call(crossing.broker.publish, topic, batch, commit_key_of(given.commit_key))


@get("/topics/{topic:str}/partitions/{partition:int}/messages", opt={"right": Right.READ}, tags=["messages"])
async def fetch(
    request: Request[Any, Any, Any],
    topic: str,
    partition: int,
    crossing: Crossing,
    offset: Annotated[int | None, Parameter(description="the first offset to read", ge=0)] = None,
    time_us: Annotated[int | None, Parameter(description="or the first message at or after this time", ge=0)] = None,
    max_messages: int = FETCH_MESSAGES_DEFAULT,
    max_bytes: int = FETCH_BYTES_DEFAULT,
    wait_seconds: Annotated[float, Parameter(description="how long to wait for the first message")] = 0.0,
    encoding: Encoding = "text",
) -> Response[Any]:
    """Read messages of one partition from an offset or a time on, waiting for the first if there is none."""
    name = unquoted(topic)
    if (offset is None) == (time_us is None):
        raise InvalidInput("offset", str(offset), "give either offset or time_us")
    if offset is None and time_us is not None:
        offset = await crossing.call(crossing.broker.offset_at, name, partition, time_us)
    assert offset is not None
    batch = await crossing.fetch(name, partition, offset, max_messages, max_bytes, wait_seconds)
    if wants_arrow(request):
        return Response(stream_of(batch), media_type=ARROW)
    return Response(messages_of(batch, offset, encoding), media_type=JSON)


def wants_arrow(request: Request[Any, Any, Any]) -> bool:
    """Whether the caller asks for Arrow."""
    return ARROW in request.headers.get("accept", "")


HANDLERS = [publish, fetch]

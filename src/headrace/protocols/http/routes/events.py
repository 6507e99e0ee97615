"""Subscriptions over HTTP: `GET /v1/topics/{topic}/events`, live, as server-sent events."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter, QueryParameter

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import InvalidInput, TopicDeleted
from headrace.core.limits import SUBSCRIPTION_PARTITIONS_MAX
from headrace.core.positions import parse_pairs
from headrace.edge.access import Leases
from headrace.edge.bridge import Bridge
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.http.event_stream import EventStream, Subscriber, event
from headrace.protocols.http.middleware.access import lease_of, principal_of
from headrace.protocols.http.openapi.document import MESSAGE, Docs
from headrace.protocols.http.requests.negotiation import EVENTS, answer_type
from headrace.protocols.http.requests.parameters import EncodingParameter
from headrace.protocols.http.requests.positions import parse_event_id
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.settings import HttpSettings
from headrace.wire.json import Messages

_EXAMPLE = event("messages", Messages([MESSAGE], 42), "12;0:42").decode()


@get(
    "/topics/{topic:str}/events",
    opt={
        "operation": "follow",
        "docs": Docs(answers_events=True, example=_EXAMPLE, errors=(404, 406)),
    },
    tags=["messages"],
    summary="Subscribe",
)
async def subscribe(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    bridge: NamedDependency[Bridge],
    wakes: NamedDependency[LoopWakeups],
    leases: NamedDependency[Leases],
    http_settings: NamedDependency[HttpSettings],
    start: Annotated[
        str,
        QueryParameter(
            name="from",
            description="where to start: earliest, latest, a time in microseconds, or partition:offset pairs",
        ),
    ] = "latest",
    partitions: Annotated[
        str | None,
        QueryParameter(description="partitions to follow, separated by commas; default: all, including new ones"),
    ] = None,
    encoding: EncodingParameter = "text",
    last_event_id: Annotated[
        str | None,
        HeaderParameter(
            name="Last-Event-ID", description="id of the last event received: continue after it; overrides from"
        ),
    ] = None,
) -> EventStream:
    """Stream messages live. A client that reconnects with `Last-Event-ID` misses none and gets none twice.

    Events are `messages` (of one partition, with the offset to continue at), `gap` (retention deleted the next
    messages) and `end` (a problem that says why the stream ended). Comments keep an idle connection alive.
    """
    answer_type(request, EVENTS)
    name = unquoted(topic)
    reader = await bridge.reader(name)
    chosen = None if partitions is None else _numbers(partitions)
    positions = await bridge.call(_positions, reader, start, chosen, last_event_id)
    if len(positions) > SUBSCRIPTION_PARTITIONS_MAX:
        rule = f"a subscription follows at most {SUBSCRIPTION_PARTITIONS_MAX}: choose some"
        raise InvalidInput("partitions", f"{len(positions)} partitions", rule)
    lease, idle_seconds = lease_of(request, name), http_settings.heartbeat_seconds
    subscriber = Subscriber(reader, positions, chosen is None, encoding, idle_seconds, lease)
    return EventStream(subscriber, principal_of(request), bridge, wakes, leases)


def _positions(reader: TopicReader, start: str, chosen: list[int] | None, last_event_id: str | None) -> dict[int, int]:
    earliest = reader.positions_at("earliest", chosen)
    if last_event_id:
        topic_id, _, seen = parse_event_id(last_event_id)
        if topic_id != reader.topic_id:
            raise TopicDeleted(reader.name)
        positions = {partition: seen.get(partition, 0) for partition in earliest}
    elif start in ("earliest", "latest"):
        return earliest if start == "earliest" else reader.positions_at("latest", chosen)
    elif start.isascii() and start.isdigit():
        return reader.positions_at(int(start[:20]), chosen)
    else:
        positions = {**earliest, **_of_followed(parse_pairs("from", start), earliest)}
    reader.check_reached(positions)
    return positions


def _of_followed(given: dict[int, int], followed: Collection[int]) -> dict[int, int]:
    for partition in given:
        if partition not in followed:
            raise InvalidInput("from", f"partition {partition}", "it is not among the partitions followed")
    return given


def _numbers(partitions: str) -> list[int]:
    parts = partitions.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise InvalidInput("partitions", ascii(partitions[:100]), "it must be numbers separated by commas, as in 0,3")
    return sorted({int(part) for part in parts})


HANDLERS = [subscribe]

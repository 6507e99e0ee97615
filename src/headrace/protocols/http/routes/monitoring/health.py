"""Health: live if the server answers, ready if it accepts messages; and the server's own verdict, with findings."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.di import NamedDependency

from headrace.core.health.findings import Health, Place
from headrace.core.health.rules import finding
from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.wire.operations import DescribeHealth


class Readiness(msgspec.Struct):
    """The state of the server; the log and `describe` name failing topics, because this answer is public."""

    status: str
    failing_topics: int = 0
    topics_with_gaps: int = 0
    writable: bool = True


class Alive(msgspec.Struct):
    """The server answers; `flight_port` is where clients connect to by Arrow Flight, null if it is off."""

    flight_port: int | None
    status: str = "alive"


@get("/health/live", opt={"operation": "health"}, tags=["health"], summary="Is the process alive?")
async def live(alive: NamedDependency[Alive]) -> Alive:
    """Succeeds if the process answers."""
    return alive


@get("/health/ready", opt={"operation": "health"}, tags=["health"], summary="Is the server ready for messages?")
async def ready(bridge: NamedDependency[Bridge]) -> Response[Readiness]:
    """Succeeds if the store can be written and every topic accepts messages; otherwise 503.

    `writable` is false if the disk is full or fails; `failing_topics` is the number of topics that accept no messages.
    A topic that skips offsets because messages were lost still accepts messages; the number of such topics is shown.
    """
    failing = await bridge.call(bridge.broker.failing_topics)
    gaps = await bridge.call(bridge.broker.topics_with_gaps)
    is_writable = await bridge.call(bridge.broker.can_write)
    is_ready = is_writable and not failing
    readiness = Readiness("ready" if is_ready else "failing", len(failing), len(gaps), is_writable)
    return Response(readiness, status_code=200 if is_ready else 503)


_EXAMPLE = Health.of(
    "9f86d081884c",
    1_789_000_000_000_000,
    [
        finding(
            "group_unread",
            Place("group", "orders", "billing"),
            "583 messages unread, the oldest for 12 m 5 s, and no member",
        )
    ],
)


@get(
    "/health",
    opt={"operation": "describe_health", "docs": Docs(answer=Health, example=_EXAMPLE)},
    tags=["health"],
    summary="What needs attention?",
)
async def describe_health(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> Health:
    """The verdict of this server on itself and its store: fine, attention or unknown, with all findings.

    A caller who may not read all topics sees findings on topics they may read, and on their own token.
    """
    return await perform(request, bridge, DescribeHealth())


HANDLERS = [live, ready]
API_HANDLERS = [describe_health]

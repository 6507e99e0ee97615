"""Health: live if the server answers, ready if it accepts messages."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge


class Health(msgspec.Struct):
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
async def ready(bridge: NamedDependency[Bridge]) -> Response[Health]:
    """Succeeds if the store can be written and every topic accepts messages; otherwise 503.

    `writable` is false if the disk is full or fails; `failing_topics` is the number of topics that accept no messages.
    A topic that skips offsets because messages were lost still accepts messages; the number of such topics is shown.
    """
    failing = await bridge.call(bridge.broker.failing_topics)
    gaps = await bridge.call(bridge.broker.topics_with_gaps)
    is_writable = await bridge.call(bridge.broker.can_write)
    is_ready = is_writable and not failing
    health = Health("ready" if is_ready else "failing", len(failing), len(gaps), is_writable)
    return Response(health, status_code=200 if is_ready else 503)


HANDLERS = [live, ready]

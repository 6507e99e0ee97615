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
    """Succeeds if the store is open and every topic accepts messages; otherwise 503, with the number of failing topics.

    A topic that skips offsets because messages were lost still accepts messages; the number of such topics is shown.
    """
    failing = await bridge.call(bridge.broker.failing_topics)
    gaps = await bridge.call(bridge.broker.topics_with_gaps)
    health = Health("failing" if failing else "ready", len(failing), len(gaps))
    return Response(health, status_code=503 if failing else 200)


HANDLERS = [live, ready]

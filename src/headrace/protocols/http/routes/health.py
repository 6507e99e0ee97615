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


@get("/health/live", opt={"operation": "health"}, tags=["health"], summary="Is the process alive?")
async def live() -> Health:
    """Succeeds if the process answers."""
    return Health("alive")


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

"""Health: alive if the server answers, ready if it can take messages."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge


class Health(msgspec.Struct):
    """How the server is; the log and `describe` say which topics fail, since this answer is open to all."""

    status: str
    failing_topics: int = 0
    topics_with_gaps: int = 0


@get("/health/live", opt={"operation": "health"}, tags=["health"], summary="Is the process alive?")
async def live() -> Health:
    """The process answers."""
    return Health("alive")


@get("/health/ready", opt={"operation": "health"}, tags=["health"], summary="Can it take messages?")
async def ready(bridge: NamedDependency[Bridge]) -> Response[Health]:
    """The store is open and every topic takes messages; otherwise 503, and how many do not.

    A topic that skips offsets because messages were lost takes messages all the same: how many there are is a note.
    """
    failing = await bridge.call(bridge.broker.failing_topics)
    gaps = await bridge.call(bridge.broker.topics_with_gaps)
    health = Health("failing" if failing else "ready", len(failing), len(gaps))
    return Response(health, status_code=503 if failing else 200)


HANDLERS = [live, ready]

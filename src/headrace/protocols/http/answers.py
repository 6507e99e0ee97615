"""Operations over HTTP: performed for the caller in a thread, where a large answer is encoded as JSON too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Request, Response

from headrace.edge import dispatch
from headrace.edge.bridge import Bridge
from headrace.protocols.http.formats import JSON
from headrace.protocols.http.middleware.access import principal_of
from headrace.wire.operations import Answer, Operation


async def perform(request: Request[Any, Any, Any], bridge: Bridge, operation: Operation[Answer]) -> Answer:
    """Perform an operation with the rights of the caller; a change is recorded in the audit log."""
    answer: Answer = await bridge.call(dispatch.perform, operation, bridge.broker, principal_of(request))
    return answer


async def answer(
    request: Request[Any, Any, Any], bridge: Bridge, operation: Operation[Answer], shape: Callable[[Answer], Any]
) -> Response[bytes]:
    """Perform an operation as `perform` does, and give its answer a shape for JSON."""
    principal = principal_of(request)
    body = await bridge.call(lambda: msgspec.json.encode(shape(dispatch.perform(operation, bridge.broker, principal))))
    return Response(body, media_type=JSON)

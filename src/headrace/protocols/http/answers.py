"""JSON answers, encoded in the thread that called the broker, because they may be large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec
from litestar import Response

from headrace.edge.bridge import Bridge
from headrace.protocols.http.formats import JSON

P = ParamSpec("P")
T = TypeVar("T")


async def answer(
    bridge: Bridge, shape: Callable[[T], Any], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> Response[bytes]:
    """Encode the result of a broker call as an answer."""
    body = await bridge.call(lambda: msgspec.json.encode(shape(function(*args, **kwargs))))
    return Response(body, media_type=JSON)

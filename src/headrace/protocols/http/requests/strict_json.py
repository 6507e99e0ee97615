"""JSON bodies: read strictly, since the framework would take `"2"` for 2 and 0 for false.

Whatever takes time in proportion to a body or an answer is done in a thread if that is large (`off_loop`): the event
loop is everyone's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

import msgspec
from litestar import Request

from headrace.core.errors import InvalidInput
from headrace.core.limits import LOOP_BYTES_MAX

P = ParamSpec("P")
T = TypeVar("T")
Body = TypeVar("Body", bound=msgspec.Struct)


async def read(request: Request[Any, Any, Any], kind: type[Body]) -> Body:
    """The body as a struct, or an error that says where it does not fit."""
    body = await request.body()
    return await off_loop(len(body), decode, body, kind)


async def off_loop(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on so many bytes: at once if they are few, else in a thread."""
    if size <= LOOP_BYTES_MAX:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def decode(body: bytes, kind: type[Body]) -> Body:
    """A body that was read before."""
    try:
        return _decoder(kind).decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body", f"{len(body)} bytes", f"it is not what is taken here: {error}") from None


@lru_cache(maxsize=256)
def _decoder(kind: type[Body]) -> Any:
    return msgspec.json.Decoder(kind)

"""JSON bodies, parsed strictly: the framework would accept `"2"` for 2 and 0 for false.

Work in proportion to the size of a body or an answer runs in a thread if it is large (`off_loop`), so that it does not
block the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from litestar import Request

from headrace.core.errors import InvalidInput
from headrace.core.limits import LOOP_BYTES_MAX

P = ParamSpec("P")
T = TypeVar("T")
Body = TypeVar("Body", bound=msgspec.Struct)

# Separate threads for each event loop: large bodies must not delay the query of tokens, which runs in the default
# threads of the loop. `close_decoders` ends them with the server.
_DECODERS: Final[dict[asyncio.AbstractEventLoop, ThreadPoolExecutor]] = {}
_DECODER_THREADS: Final = 4


async def read(request: Request[Any, Any, Any], kind: type[Body]) -> Body:
    """Parse the body into a struct; an error says where it does not match."""
    body = await request.body()
    return await off_loop(len(body), decode, body, kind)


async def off_loop(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work on `size` bytes: directly if they are few, otherwise in a thread."""
    if size <= LOOP_BYTES_MAX:
        return function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    if loop not in _DECODERS:
        _DECODERS[loop] = ThreadPoolExecutor(_DECODER_THREADS, thread_name_prefix="headrace-decode")
    return await loop.run_in_executor(_DECODERS[loop], partial(function, *args, **kwargs))


def close_decoders() -> None:
    """End the decoding threads of the running event loop; what they are at work on is finished."""
    pool = _DECODERS.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        pool.shutdown(wait=False)


def decode(body: bytes, kind: type[Body]) -> Body:
    """A body that was read before."""
    try:
        return _decoder(kind).decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body", f"{len(body)} bytes", f"it does not match the schema: {error}") from None


@lru_cache(maxsize=256)
def _decoder(kind: type[Body]) -> Any:
    return msgspec.json.Decoder(kind)

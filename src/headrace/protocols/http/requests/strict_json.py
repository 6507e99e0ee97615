"""JSON bodies: read strictly, since the framework would take `"2"` for 2 and 0 for false."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from litestar import Request

from headrace.core.errors import InvalidInput

Body = TypeVar("Body", bound=msgspec.Struct)


async def read(request: Request[Any, Any, Any], kind: type[Body]) -> Body:
    """The body as a struct, or an error that says where it does not fit."""
    return decode(await request.body(), kind)


def decode(body: bytes, kind: type[Body]) -> Body:
    """A body that was read before."""
    try:
        return _decoder(kind).decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body", f"{len(body)} bytes", f"it is not what is taken here: {error}") from None


@lru_cache(maxsize=256)
def _decoder(kind: type[Body]) -> Any:
    return msgspec.json.Decoder(kind)

"""Query strings: an unknown or repeated parameter is an error.

A misspelt `max_mesages` that is silently ignored would be found late.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from litestar.connection import ASGIConnection
from litestar.enums import ParamType
from litestar.handlers import BaseRouteHandler
from litestar.params import ParameterKwarg

from headrace.core.errors import InvalidInput


async def check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard: allows only declared parameters, each once."""
    # A coroutine although it awaits nothing: the framework would run a plain function in a thread.
    if not connection.scope["query_string"]:
        return
    known, given = _known(handler), list(connection.query_params.multi_items())
    for name, times in Counter(name for name, _ in given).items():
        if name not in known:
            rule = f"known parameters are {', '.join(sorted(known))}" if known else "this operation has no parameters"
            raise InvalidInput("query parameter", ascii(name[:100]), rule)
        if times > 1:
            raise InvalidInput("query parameter", ascii(name), f"it is given {times} times: give it once")
    for name, value in given:
        # The framework would treat it as missing.
        if str(value).lower() == "null" and known[name] is not str:
            raise InvalidInput(name, "null", "omit it to get the default")


@lru_cache(maxsize=1024)
def _known(handler: BaseRouteHandler) -> dict[str, Any]:
    """The parameters by name with their types."""
    known: dict[str, Any] = {}
    inside = handler.resolve_dependencies()
    for name, field in handler.parsed_fn_signature.parameters.items():
        definition = field.kwarg_definition
        # What the application itself hands over looks the same.
        is_inside = name in inside
        if not is_inside and isinstance(definition, ParameterKwarg) and definition.param_type == ParamType.QUERY:
            known[definition.name or name] = field.annotation
    return known

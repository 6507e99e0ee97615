"""Headrace: a durable topic broker that brings message streams to Apache Spark.

Names are imported when they are first asked for: the command line and Spark's workers need few of them, and should not
wait for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.broker import Broker
    from headrace.client import Client, Consumer, Message, Producer, Receipt, connect
    from headrace.core.errors import HeadraceError

__all__ = ["Broker", "Client", "Consumer", "HeadraceError", "Message", "Producer", "Receipt", "connect"]

_HOMES = {"Broker": "headrace.broker", "HeadraceError": "headrace.core.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "headrace.client")), name)

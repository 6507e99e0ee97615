"""Headrace: a durable topic broker that brings message streams to Apache Spark.

This is the public surface; `headrace.aio` is the client for asyncio, `headrace.errors` has all errors,
`headrace.testing` a broker for tests, and `headrace.tracing` turns traces on. Names are imported when they are first
asked for: the command line and Spark's workers need few of them, and should not wait for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace import aio, errors, testing, tracing
    from headrace.broker import Broker, BrokerSettings, TopicDefaults
    from headrace.client import (
        Client,
        Consumer,
        Following,
        Message,
        Producer,
        Receipt,
        Start,
        TopicPartition,
        TopicsConsumer,
        connect,
    )
    from headrace.core.errors import HeadraceError
    from headrace.core.publish.receipts import Receipts
    from headrace.core.publish.state import CommitKey
    from headrace.core.reports.descriptions import (
        CommitOutcome,
        GroupDescription,
        Identity,
        PartitionProgress,
        ServerDescription,
        SourceDescription,
        Staged,
        TopicDescription,
    )
    from headrace.core.reports.pipelines import PipelineDescription, PipelineReport
    from headrace.core.topics.settings import TopicOptions, TopicSettings
    from headrace.tables.sql import table

    __version__: str

__all__ = [
    "Broker",
    "BrokerSettings",
    "Client",
    "CommitKey",
    "CommitOutcome",
    "Consumer",
    "Following",
    "GroupDescription",
    "HeadraceError",
    "Identity",
    "Message",
    "PartitionProgress",
    "PipelineDescription",
    "PipelineReport",
    "Producer",
    "Receipt",
    "Receipts",
    "ServerDescription",
    "SourceDescription",
    "Staged",
    "Start",
    "TopicDefaults",
    "TopicDescription",
    "TopicOptions",
    "TopicPartition",
    "TopicSettings",
    "TopicsConsumer",
    "__version__",
    "aio",
    "connect",
    "errors",
    "table",
    "testing",
    "tracing",
]

_MODULES = {
    "headrace.broker": ["Broker", "BrokerSettings", "TopicDefaults"],
    "headrace.client": [
        "Client",
        "Consumer",
        "Following",
        "Message",
        "Producer",
        "Receipt",
        "Start",
        "TopicPartition",
        "TopicsConsumer",
        "connect",
    ],
    "headrace.core.reports.descriptions": [
        "CommitOutcome",
        "GroupDescription",
        "Identity",
        "PartitionProgress",
        "ServerDescription",
        "SourceDescription",
        "Staged",
        "TopicDescription",
    ],
    "headrace.core.errors": ["HeadraceError"],
    "headrace.core.reports.pipelines": ["PipelineDescription", "PipelineReport"],
    "headrace.core.publish.receipts": ["Receipts"],
    "headrace.core.publish.state": ["CommitKey"],
    "headrace.core.topics.settings": ["TopicOptions", "TopicSettings"],
    "headrace.tables.sql": ["table"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in ("aio", "errors", "testing", "tracing"):
            return _imported(f"{__name__}.{name}")
        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_imported(_HOMES[name]), name)

    def _imported(module: str) -> object:
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            line = import_module(f"{__name__}.extras").cure(error, is_command=False)
            if line is None:
                raise
            raise ModuleNotFoundError(line, name=error.name) from error


def __dir__() -> list[str]:
    return __all__

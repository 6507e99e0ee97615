"""Directories, which are what topics have before a `/` in their names: made by the first topic, gone with the last."""

from __future__ import annotations

from typing import Final

from headrace.broker import Broker
from headrace.core.rights import Caller
from headrace.protocols.ydb.call import YdbCall
from headrace.protocols.ydb.names import below
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import scheme

_DIRECTORY: Final = scheme.Entry.Type.DIRECTORY
_TOPIC: Final = scheme.Entry.Type.TOPIC
_SYSTEM: Final = "headrace"


def entry(name: str, kind: int) -> scheme.Entry:
    """A topic or a directory, by the last part of its path."""
    return scheme.Entry(name=name.rpartition("/")[2], owner=_SYSTEM, type=kind)


def _names(broker: Broker, caller: Caller) -> list[str]:
    return [name for name in broker.list_topics() if caller.may_see(name)]


async def describe_path(call: YdbCall, request: scheme.DescribePathRequest) -> scheme.DescribePathResult:
    """A topic or a directory."""
    path = below(request.path, call.database)
    names = await call.parts.bridge.call(_names, call.parts.bridge.broker, call.principal.caller)
    if path in names:
        return scheme.DescribePathResult(self=entry(path, _TOPIC))
    if path and not any(name.startswith(path + "/") for name in names):
        raise _missing(request.path)
    return scheme.DescribePathResult(self=entry(path or call.database, _DIRECTORY))


async def list_directory(call: YdbCall, request: scheme.ListDirectoryRequest) -> scheme.ListDirectoryResult:
    """What is in a directory."""
    path = below(request.path, call.database)
    names = await call.parts.bridge.call(_names, call.parts.bridge.broker, call.principal.caller)
    prefix = f"{path}/" if path else ""
    inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    if path and not inside:
        raise _missing(request.path)
    kinds: dict[str, int] = {}
    for name in inside:
        first, slash, _ = name.partition("/")
        kinds.setdefault(first, _DIRECTORY if slash else _TOPIC)
    children = [entry(name, kind) for name, kind in kinds.items()]
    return scheme.ListDirectoryResult(self=entry(path or call.database, _DIRECTORY), children=children)


async def make_directory(call: YdbCall, request: scheme.MakeDirectoryRequest) -> scheme.Entry:
    """Nothing to do: a topic brings its directories."""
    below(request.path, call.database)
    return scheme.Entry()


async def remove_directory(call: YdbCall, request: scheme.RemoveDirectoryRequest) -> scheme.Entry:
    """Nothing to do for an empty one; one with topics is refused."""
    path = below(request.path, call.database)
    names = await call.parts.bridge.call(_names, call.parts.bridge.broker, call.principal.caller)
    if any(name.startswith(f"{path}/" if path else "") for name in names):
        raise YdbRefusal(Status.PRECONDITION_FAILED, f"directory {request.path[:100]!r} has topics: drop them first")
    return scheme.Entry()


def _missing(path: str) -> YdbRefusal:
    return YdbRefusal(Status.SCHEME_ERROR, f"path {path[:100]!r} does not exist")

"""The servers of the store: `GET /v1/servers`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from litestar import Request, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.wire.operations import ListServers


class ServerOut(msgspec.Struct):
    """A running server: its URL by protocol, its start and its last heartbeat in microseconds."""

    id: str
    version: str
    addresses: dict[str, str]
    started_us: int
    heartbeat_us: int


class ServersOut(msgspec.Struct):
    """The running servers, in the order they started."""

    servers: list[ServerOut]


_ADDRESSES = {"http": "http://10.0.0.5:7070", "flight": "headrace://10.0.0.5:7071"}
_EXAMPLE = ServersOut([ServerOut("9f86d081884c", "0.2.0", _ADDRESSES, 1_789_000_000_000_000, 1_789_000_360_000_000)])


@get(
    "/servers",
    opt={"operation": "list_servers", "docs": Docs(answer=ServersOut, example=_EXAMPLE)},
    tags=["servers"],
    summary="List servers",
)
async def list_servers(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ServersOut:
    """List the running servers of the store with their addresses; one that stops disappears within half a minute."""
    found = await perform(request, bridge, ListServers())
    return ServersOut([ServerOut(**asdict(server)) for server in found])


HANDLERS = [list_servers]

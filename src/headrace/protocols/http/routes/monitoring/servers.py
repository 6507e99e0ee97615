"""The servers of the store and their clients: `GET /v1/servers`, `GET /v1/clients`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from litestar import Request, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.wire.descriptions import ClientMemberOut, ClientOut, ClientProducerOut
from headrace.wire.operations import ListClients, ListServers


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
_SERVERS = ServersOut([ServerOut("9f86d081884c", "0.2.0", _ADDRESSES, 1_789_000_000_000_000, 1_789_000_360_000_000)])


@get(
    "/servers",
    opt={"operation": "list_servers", "docs": Docs(answer=ServersOut, example=_SERVERS)},
    tags=["servers"],
    summary="List servers",
)
async def list_servers(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ServersOut:
    """List the running servers of the store with their addresses; one that stops disappears within half a minute."""
    found = await perform(request, bridge, ListServers())
    return ServersOut([ServerOut(**asdict(server)) for server in found])


class ClientsOut(msgspec.Struct):
    """The clients of this server, those that called last first."""

    clients: list[ClientOut]


_CLIENTS = ClientsOut(
    [
        ClientOut(
            server="9f86d081884c",
            protocol="flight",
            principal="billing",
            address="10.0.0.7",
            client_id="billing",
            host="web-3",
            pid=4711,
            library="headrace",
            version="0.1.0",
            since_us=1_789_000_000_000_000,
            seen_us=1_789_000_360_000_000,
            members=[ClientMemberOut("orders", "billing", "worker-1", 1_789_000_359_000_000)],
            producers=[ClientProducerOut("invoices", "billing-1")],
        )
    ]
)


@get(
    "/clients",
    opt={"operation": "list_clients", "docs": Docs(answer=ClientsOut, example=_CLIENTS)},
    tags=["servers"],
    summary="List clients",
)
async def list_clients(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> ClientsOut:
    """List who calls this server: what each client says of itself, where it calls from, and what it reads and writes.

    A client without connections is remembered for 15 minutes after its last call. A caller who may not read all topics
    sees their own clients, and what others do in the topics that they may read.
    """
    found = await perform(request, bridge, ListClients())
    return ClientsOut([ClientOut.of(each) for each in found])


HANDLERS = [list_servers, list_clients]

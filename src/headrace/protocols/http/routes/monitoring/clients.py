"""The clients of the server: `GET /v1/clients`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.wire.descriptions import ClientMemberOut, ClientOut, ClientProducerOut
from headrace.wire.operations import ListClients


class ClientsOut(msgspec.Struct):
    """The clients of this server, those that called last first."""

    clients: list[ClientOut]


_EXAMPLE = ClientsOut(
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
    opt={"operation": "list_clients", "docs": Docs(answer=ClientsOut, example=_EXAMPLE)},
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


HANDLERS = [list_clients]

"""Where the servers of the store are, who the caller is, and signing in with a user and a password.

Clients connect to the addresses that they are told here: those that servers advertise, or this server's own before it
has. A password is the text of a token; the user that is given with it is not looked at.
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit
from zlib import crc32

from headrace.broker import Broker
from headrace.protocols.ydb.call import SharedParts, YdbCall
from headrace.protocols.ydb.stubs import auth, discovery

_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_NODE_MAX: Final = (1 << 31) - 1


def node_of(server_id: str) -> int:
    """The number of a server, which is never 0."""
    return crc32(server_id.encode()) % _NODE_MAX + 1


def nodes_of_partitions(broker: Broker, partitions: int) -> list[int]:
    """Where each partition is, which all servers tell alike: those that speak this protocol take turns."""
    nodes = sorted(node_of(each.id) for each in broker.servers.list() if each.addresses.get("ydb"))
    nodes = nodes or [node_of(broker.servers.id)]
    return [nodes[partition % len(nodes)] for partition in range(partitions)]


async def list_endpoints(call: YdbCall, request: discovery.ListEndpointsRequest) -> discovery.ListEndpointsResult:
    """The servers of the store that speak this protocol."""
    parts = call.parts
    found = await parts.bridge.call(_endpoints, parts)
    endpoints = [
        discovery.EndpointInfo(address=host, port=port, ssl=parts.has_tls, node_id=node, service=["topic"])
        for node, (host, port) in found.items()
    ]
    return discovery.ListEndpointsResult(endpoints=endpoints)


def _endpoints(parts: SharedParts) -> dict[int, tuple[str, int]]:
    servers = parts.bridge.broker.servers
    found = {}
    for each in servers.list():
        url = urlsplit(each.addresses.get("ydb") or "")
        if url.hostname and url.port:
            found[node_of(each.id)] = url.hostname, url.port
    host, port = parts.own_address
    return found or {node_of(servers.id): (socket.gethostname() if host in _WILDCARDS else host, port)}


async def who_am_i(call: YdbCall, request: discovery.WhoAmIRequest) -> discovery.WhoAmIResult:
    """The name of the caller's token."""
    return discovery.WhoAmIResult(user=call.principal.name)


async def log_in(call: YdbCall, request: auth.LoginRequest) -> auth.LoginResult:
    """The token that the password is."""
    await call.sign_in(request.password)
    return auth.LoginResult(token=request.password)

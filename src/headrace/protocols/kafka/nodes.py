"""The nodes of the cluster, as Kafka's clients see them: the servers of a store that speak Kafka.

On a store that one server owns there is one node. On a shared store each server lists itself (`broker.cluster`); the
list is read again every other second. A server that was killed stays in it for a while, so each is also asked for a
connection: one that refuses it counts as stopped.

Every server can serve every partition. Leaders only spread the load: each partition and each group is given to one of
the live servers by rendezvous hashing, so that a server that comes or goes moves no more than its share. A group's
members are known to its coordinator alone; the others refuse them, and clients ask again who it is.

While two servers disagree about who is alive, a group may have two coordinators. Partitions may then be read twice for
some seconds; offsets are in the store, and nothing is lost.

The list belongs to the event loop; any thread may ask which node has what.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from headrace.core.errors import HeadraceError
from headrace.core.reports.descriptions import ServerDescription
from headrace.edge.bridge import Bridge

PROTOCOL: Final = "kafka"
REFRESH_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 1.0
# The one node of a store that one server owns: the same after a restart.
_ONLY: Final = 0
_ID_BITS: Final = 0x7FFFFFFF

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    """A server that clients can connect to."""

    id: int
    host: str
    port: int


class Nodes:
    """The live servers, as last read."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        servers = bridge.broker.servers
        self.own_id = int(servers.id, 16) & _ID_BITS if servers.is_shared else _ONLY
        self._others: tuple[Node, ...] = ()
        self._is_shared = servers.is_shared

    async def refresh(self) -> None:
        """Read the list of servers again."""
        if self._is_shared:
            try:
                found = await self._bridge.call(self._bridge.broker.servers.list)
            except HeadraceError as error:
                logger.debug("the list of servers cannot be read, the last one counts: %s", error)
                return
            nodes = [node for server in found if (node := _node(server)) is not None and node.id != self.own_id]
            refusing = await asyncio.gather(*map(_refuses, nodes))
            self._others = tuple(node for node, is_gone in zip(nodes, refusing, strict=True) if not is_gone)

    async def keep_fresh(self) -> None:
        """Read the list of servers every other second, as long as the server runs."""
        while self._is_shared:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    def all(self, own_address: tuple[str, int]) -> list[Node]:
        """All nodes; this one has the address that the caller knows it by."""
        return sorted([Node(self.own_id, *own_address), *self._others], key=lambda node: node.id)

    def leaders(self, topic_id: int, partitions: int) -> npt.NDArray[np.int32]:
        """The ids of the nodes that the partitions of a topic, so many, are given to."""
        return _leaders(topic_id, partitions, self._ids())

    def coordinators(self, groups: Iterable[str], own_address: tuple[str, int]) -> list[Node]:
        """The nodes that know the members of these groups."""
        nodes = {node.id: node for node in (Node(self.own_id, *own_address), *self._others)}
        return [nodes[node_id] for node_id in _chosen(map(_of_group, groups), tuple(nodes))]

    def is_coordinator(self, group: str) -> bool:
        """Whether this server knows the members of a group."""
        return _chosen([_of_group(group)], self._ids()) == [self.own_id]

    def _ids(self) -> tuple[int, ...]:
        return (self.own_id, *(node.id for node in self._others))


# Clients ask for the same topics again and again. If all have as many partitions as a topic may, this is 10 MB.
@lru_cache(maxsize=256)
def _leaders(topic_id: int, partitions: int, ids: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Of the nodes of these ids those that the partitions of a topic are given to; nobody changes it."""
    return np.array(_chosen((f"{topic_id}/{partition}" for partition in range(partitions)), ids), np.int32)


def _chosen(keys: Iterable[str], ids: tuple[int, ...]) -> list[int]:
    """For each key the node whose checksum with it is largest; the part of the key is computed once."""
    if len(ids) == 1:
        return [ids[0] for _ in keys]
    ends = [(node_id, f"/{node_id}".encode()) for node_id in ids]
    sums = (zlib.crc32(key.encode()) for key in keys)
    return [max((zlib.crc32(end, begun), node_id) for node_id, end in ends)[1] for begun in sums]


def _of_group(group: str) -> str:
    return f"group/{group}"


async def _refuses(node: Node) -> bool:
    """Whether nobody listens there; a slow server counts as alive."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(node.host, node.port)
    except TimeoutError:
        return False
    except OSError:
        return True
    writer.close()
    return False


def _node(server: ServerDescription) -> Node | None:
    url = server.addresses.get(PROTOCOL)
    if url is None:
        return None
    parts = urlsplit(url)
    return Node(int(server.id, 16) & _ID_BITS, parts.hostname or "", parts.port or 0)

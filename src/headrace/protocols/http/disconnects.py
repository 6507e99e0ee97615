"""Ends the work for clients that disconnect or lose their right: nothing is held for a client that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from litestar import Request
from litestar.types import Receive

from headrace.core.errors import Closed
from headrace.edge.access import Lease, Leases, Principal

T = TypeVar("T")
# Where the scope of a request has the socket of its connection.
SOCKET: Final = "headrace.socket"


async def attend(
    request: Request[Any, Any, Any], work: Coroutine[Any, Any, T], principal: Principal, lease: Lease, leases: Leases
) -> T:
    """Do work while its client is connected and has the right. Counts as a long poll of the caller."""
    try:
        with principal.stream():
            return await _attend(request, work, lease, leases)
    finally:
        # Python warns of a coroutine that was never started.
        work.close()


async def _attend(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T], lease: Lease, leases: Leases) -> T:
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(left(request.receive))
    ending = asyncio.create_task(leases.ended(lease))
    tasks = (working, leaving, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
        if working.done():
            # Messages that arrived just when the lease ended are not delivered.
            lease.check()
            return working.result()
        raise Closed("the connection")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def left(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""Gives a group of the newer protocol its targets, whenever members, topics or partitions have changed.

A group is renewed once for all members that ask meanwhile. Few partitions are divided at once; many in a thread, for
one group at a time, and with a rest after it that is as long as it took. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from headrace.broker import Broker
from headrace.core.errors import HeadraceError
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.coordinator.assignment import Owned, Plan, assign
from headrace.protocols.kafka.coordinator.consumer_group import ConsumerGroup

# With more topics, members or partitions than these the work is done in a thread: some milliseconds.
LOOP_PLACES_MAX: Final = 1_000
# A change that comes during a renewal is in the next one: who brings it waits for that too.
_TRIES: Final = 2


class Turns:
    """Divides the partitions of all groups of a server."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._large = asyncio.Lock()
        self._rests_until = 0.0

    async def divide(self, plan: Plan) -> dict[str, frozenset[Owned]]:
        """The targets of members."""
        if plan.places + len(plan.topics) <= LOOP_PLACES_MAX:
            return assign(plan)
        loop = asyncio.get_running_loop()
        async with self._large:
            await asyncio.sleep(self._rests_until - loop.time())
            began = loop.time()
            try:
                return await self.bridge.call(assign, plan)
            finally:
                self._rests_until = 2 * loop.time() - began


class Renewal:
    """The targets of one group."""

    def __init__(self, group: ConsumerGroup, turns: Turns) -> None:
        self._group = group
        self._turns = turns
        # Which topics there were when their partitions were looked up.
        self._version = -1
        self._task: asyncio.Task[None] | None = None

    async def finish(self) -> None:
        """Wait until what members were told before is in their targets."""
        broker = self._turns.bridge.broker
        for _ in range(_TRIES):
            if not self._group.is_stale and self._version == broker.topics_version():
                return
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._renew())
                # Those who wait for it may all be gone when it fails.
                self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._task)

    async def _renew(self) -> None:
        bridge, group, topics = self._turns.bridge, self._group, list(self._group.roster.topics)
        version = bridge.broker.topics_version()
        if len(topics) <= LOOP_PLACES_MAX and all(map(bridge.broker.knows_topic, topics)):
            sizes = _sizes(bridge.broker, topics)
        else:
            sizes = await bridge.call(_sizes, bridge.broker, topics)
        plan = group.plan(sizes)
        self._version = version
        if plan is not None:
            group.apply(plan, await self._turns.divide(plan))


def _sizes(broker: Broker, topics: Collection[str]) -> dict[str, tuple[int, int] | None]:
    """Number and partitions of topics; None for those that do not exist."""
    sizes: dict[str, tuple[int, int] | None] = {}
    for topic in topics:
        try:
            reader = broker.reader(topic)
            sizes[topic] = reader.topic_id, reader.partitions
        except HeadraceError:
            sizes[topic] = None
    return sizes

"""Committed offsets: what a group has read of each partition, as the next offset to read.

A member that commits for a partition which it lost since is answered OK, and nothing is stored: the next owner reads on
from what was committed before. Its client keeps what was not committed, sends it again after each time that it joins,
and would join without end if that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headrace.broker import Broker
from headrace.protocols.cursus.call import CursusCall, check_partition, group_of, topic_of
from headrace.protocols.cursus.errors import CursusRefusal, Quoted
from headrace.protocols.cursus.messages.command import Command, whole

_ENTRY: Final = re.compile(r"P?(\d{1,10}):(-?\d{1,20})")


async def fetch(call: CursusCall, command: Command) -> str:
    """The committed offset of a partition; 0 if nothing was committed."""
    topic, group = topic_of(command), group_of(command)
    call.require("committed", topic)
    partition = command.number("partition")
    check_partition(await call.reader(topic), partition)
    committed = await call.work(call.broker.committed, topic, group)
    return f"OK offset={committed.get(partition, 0)}"


async def commit(call: CursusCall, command: Command) -> str:
    """Commit one partition."""
    topic_of(command)
    if not command.get("offset"):
        raise CursusRefusal("missing_offset", command=command.name)
    partition, offset = command.number("partition"), command.number("offset")
    await _commit(call, command, {partition: offset}, may_regress=False)
    return "OK"


async def commit_many(call: CursusCall, command: Command) -> str:
    """Commit several partitions, all of them or none; one that was committed further before stays there."""
    offsets: dict[int, int] = {}
    for entry in (each for word in command.words for each in word.split(",") if each):
        parts = _ENTRY.fullmatch(entry)
        if parts is None or not entry.startswith("P"):
            raise CursusRefusal("invalid_partition", entry=Quoted(entry[:100]))
        partition = int(parts[1])
        if partition in offsets:
            named = {"group": command.get("group"), "topic": command.get("topic")}
            raise CursusRefusal("duplicate_partition", partition=partition, **named)
        offsets[partition] = whole(parts[2], "invalid_offset")
    if not offsets:
        raise CursusRefusal("no_valid_offsets")
    return f"OK batched={await _commit(call, command, offsets, may_regress=True)}"


async def _commit(call: CursusCall, command: Command, offsets: Mapping[int, int], may_regress: bool) -> int:
    """Commit; of how many partitions that the member owns."""
    topic, group = topic_of(command), command.required("group")
    member, generation = command.required("member"), command.number("generation")
    call.require("commit", topic, group)
    reader = await call.reader(topic)
    for partition in offsets:
        check_partition(reader, partition)
    return await call.work(_committed, call.broker, topic, (group, member, generation), offsets, may_regress)


def _committed(
    broker: Broker, topic: str, named: tuple[str, str, int], offsets: Mapping[int, int], may_regress: bool
) -> int:
    group, member, generation = named
    present = broker.heartbeat(topic, group, member)
    if generation == present.generation:
        offsets = {each: offset for each, offset in offsets.items() if each in present.partitions}
    if not may_regress:
        _check_onward(group, broker.committed(topic, group), offsets)
    if offsets:
        # A commit never moves back.
        broker.commit_offsets(topic, group, offsets, member, generation)
    return len(offsets)


def _check_onward(group: str, before: Mapping[int, int], offsets: Mapping[int, int]) -> None:
    for partition, offset in offsets.items():
        if offset < before.get(partition, 0):
            reason = f"partition {partition} of group {group} was committed up to {before[partition]}, not {offset}"
            raise CursusRefusal("offset_regression", reason=Quoted(reason))

"""CREATE and DELETE.

Every producer sends CREATE when it starts and ignores the answer: for a topic that exists, and needs no more
partitions, that takes no right but to know it. A topic of events has another one beside it, for its snapshots.
"""

from __future__ import annotations

from contextlib import suppress

from headrace.core.errors import TopicNotFound
from headrace.core.reports.descriptions import TopicDescription
from headrace.protocols.cursus.call import CursusCall
from headrace.protocols.cursus.commands.events import snapshots_topic
from headrace.protocols.cursus.commands.kept import (
    EVENT_SOURCING,
    PARTITIONS_DEFAULT,
    check_name,
    has,
    policy_of,
    settings_of,
)
from headrace.protocols.cursus.errors import CursusRefusal, Quoted
from headrace.protocols.cursus.messages.command import Command


async def create(call: CursusCall, command: Command) -> str:
    """Create a topic, or add partitions to it."""
    name = check_name(command.required("topic"))
    partitions = PARTITIONS_DEFAULT
    if text := command.get("partitions"):
        if not (text.isascii() and text.isdecimal() and 1 <= len(text) < 10 and int(text) > 0):
            raise CursusRefusal("invalid_partitions", reason=Quoted("must be a positive integer"))
        partitions = int(text)
    made = await call.work(_created, call, name, partitions, command)
    policy = " ".join(f"{key}={value}" for key, value in policy_of(made.settings).items())
    return f"OK topic={made.name} partitions={made.partitions} {policy}"


async def delete(call: CursusCall, command: Command) -> str:
    """Delete a topic, with the snapshots of its events."""
    name = command.required("topic")
    await call.work(_deleted, call, name)
    return f"OK topic={name} deleted=true"


def _created(call: CursusCall, name: str, partitions: int, command: Command) -> TopicDescription:
    broker, settings = call.broker, settings_of(command)
    try:
        present = broker.describe_topic(name)
    except TopicNotFound:
        with call.principal.recording():
            call.require("create_topic", name)
            made = broker.create_topic(name, partitions, **settings)
            if has(made.settings, EVENT_SOURCING):
                broker.create_topic(snapshots_topic(name), partitions)
            return made
    if not (call.principal.may("describe_topic", name) or call.principal.may("publish", name)):
        call.require("describe_topic", name)
    if partitions < present.partitions:
        reason = f"it has {present.partitions} partitions: they cannot become {partitions}"
        raise CursusRefusal("create_topic_failed", topic=name, reason=Quoted(reason))
    if partitions == present.partitions:
        return present
    with call.principal.recording():
        call.require("alter_topic", name)
        return broker.alter_topic(name, partitions)


def _deleted(call: CursusCall, name: str) -> None:
    with call.principal.recording():
        call.require("delete_topic", name)
        is_of_events = has(call.broker.describe_topic(name).settings, EVENT_SOURCING)
        call.broker.delete_topic(name)
        if is_of_events:
            with suppress(TopicNotFound):
                call.broker.delete_topic(snapshots_topic(name))

"""Groups: members join, say that they live, and leave.

A member is one of the broker's own group in the topic, whichever server and protocol the others come by. It takes no
part in handing a partition over: what it is to give up is taken at once, its stream of that partition ends, and its
next heartbeat is told that the generation is over, upon which clients join again.

The server completes the name that a client gives: two clients may give the same one. A client that joins again under
its completed name stays the same member.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Final

from headrace.broker import Broker
from headrace.core.errors import GroupNotFound, MemberNotFound, StaleGeneration
from headrace.core.reports.descriptions import Membership
from headrace.protocols.cursus.call import CursusCall, topic_of
from headrace.protocols.cursus.commands.discovery import is_plain, told_names
from headrace.protocols.cursus.errors import CursusRefusal
from headrace.protocols.cursus.messages.command import Command

# What the server has added to a name, once that was joined with before.
_COMPLETED_TWICE: Final = re.compile(r"(.+-\d{4})-\d{4}")
_AT_ONCE: Final = 0.0


async def join(call: CursusCall, command: Command) -> str:
    """Join, join again, or with a generation take up a membership that is known."""
    topic, group, given = _named(command)
    call.require("join", topic, group)
    session_seconds = call.parts.settings.session_seconds
    if command.get("generation"):
        joined = await call.work(_present, call.broker, topic, group, given, command.number("generation"))
        return f"{_told(call, topic, joined)} resumed=true"
    return _told(call, topic, await call.work(_join, call.broker, topic, group, given, session_seconds))


async def sync(call: CursusCall, command: Command) -> str:
    """The partitions of a member."""
    topic, group, member = _named(command)
    call.require("heartbeat", topic, group)
    generation = command.number("generation")
    return _told(call, topic, await call.work(_present, call.broker, topic, group, member, generation))


async def heartbeat(call: CursusCall, command: Command) -> str:
    """Stay a member, and hear whether the generation is over."""
    topic, group, member = _named(command)
    call.require("heartbeat", topic, group)
    generation = command.number("generation")
    await call.work(_present, call.broker, topic, group, member, generation)
    _note(call, topic, group, member)
    return f"OK member={member} generation={generation}"


async def leave(call: CursusCall, command: Command) -> str:
    """Leave, whether or not the client says in which generation it was."""
    topic, group, member = _named(command)
    call.require("leave", topic, group)
    await call.work(call.broker.leave_group, topic, group, member)
    call.called_by(member)
    call.principal.left(group, member, topic)
    return f"OK group={group} member={member} left=true"


async def register(call: CursusCall, command: Command) -> str:
    """Create a group without members."""
    topic, group = topic_of(command), command.required("group")

    def create() -> None:
        with call.principal.recording():
            call.require("register_group", topic, group)
            call.broker.register_group(topic, group)

    await call.work(create)
    return f"OK group={group} topic={topic} registered=true"


async def status(call: CursusCall, command: Command) -> str:
    """A group; if several topics have one of that name, the first of them that the caller may read."""
    group = command.required("group")
    return await call.work(_status, call, group, command.get("topic"))


async def list_groups(call: CursusCall, _: Command) -> str:
    """The groups of the topics that the caller may read, as far as their names can be told."""
    found = await call.work(call.broker.topics_of_groups)
    names = await call.work(
        lambda: sorted(
            name
            for name, topics in found.items()
            if is_plain(name) and any(call.principal.may("list_groups", topic) for topic in topics)
        )
    )
    return await told_names(call, "groups", names)


def _named(command: Command) -> tuple[str, str, str]:
    return topic_of(command), command.required("group"), command.required("member")


def _join(broker: Broker, topic: str, group: str, given: str, session_seconds: float) -> Membership:
    try:
        member = broker.heartbeat(topic, group, given).member
    except (GroupNotFound, MemberNotFound):
        completed = _COMPLETED_TWICE.fullmatch(given)
        member = f"{completed[1] if completed else given}-{secrets.randbelow(10_000):04}"
    return broker.join_group(topic, group, member, session_seconds, _AT_ONCE)


def _present(broker: Broker, topic: str, group: str, member: str, generation: int) -> Membership:
    """A member of the present generation, whose session goes on."""
    present = broker.heartbeat(topic, group, member)
    if present.generation != generation:
        raise StaleGeneration(group, generation, present.generation)
    return present


def check_member(
    broker: Broker, topic: str, group: str, member: str, partition: int, generation: int | None
) -> Membership:
    """A member that owns a partition in this generation; without one, in the present generation."""
    present = broker.heartbeat(topic, group, member)
    if generation is not None and present.generation != generation:
        raise StaleGeneration(group, generation, present.generation)
    if partition not in present.partitions:
        raise CursusRefusal("NOT_OWNER", partition=partition, member=member, group=group, generation=present.generation)
    return present


def _told(call: CursusCall, topic: str, joined: Membership) -> str:
    _note(call, topic, joined.group, joined.member)
    # Blanks between them: some clients know no commas.
    assigned = " ".join(map(str, joined.partitions))
    return f"OK generation={joined.generation} member={joined.member} assignments=[{assigned}]"


def _note(call: CursusCall, topic: str, group: str, member: str) -> None:
    call.called_by(member)
    call.principal.joined(topic, group, member)


def _status(call: CursusCall, group: str, asked: str) -> str:
    topics = [asked] if asked else call.broker.topics_of_groups([group]).get(group, [])
    visible = sorted(topic for topic in topics if call.principal.may("describe_group", topic))
    if not visible:
        raise CursusRefusal("group_not_found", group=group)
    found = call.broker.describe_group(visible[0], group)
    members = [{"member_id": name, "assignments": parts} for name, parts in sorted(found.members.items())]
    told = {
        "status": "OK",
        "group_name": found.name,
        "topic_name": found.topic,
        "state": "Stable" if members else "Empty",
        "generation": found.generation,
        "member_count": len(members),
        "partition_count": call.broker.reader(found.topic).partitions,
        "members": members,
    }
    return json.dumps(told)

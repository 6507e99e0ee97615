"""Groups for tests, and members that do what they are asked."""

from __future__ import annotations

from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, Held
from headrace.core.limits import MICROSECONDS

NOW_US = 1_700_000_000 * MICROSECONDS
PARTITIONS = 4


def group_of(*members: str, max_poll_seconds: float = 300.0, server: str = "") -> Group:
    """An open group of a topic with four partitions, whose members joined in this order and let nothing go yet."""
    group = Group("readers")
    for member in members:
        group = rules.join(group, member, 30.0, PARTITIONS, max_poll_seconds, server=server)
    return group


def fixed(consumers: int) -> Group:
    return Group("readers", consumers)


def acknowledged(group: Group, member: str, partitions: int = PARTITIONS) -> Group:
    """The group after a member let go all that it was asked to."""
    held = Held(group.generation, rules.assigned(group, member, partitions))
    return rules.heartbeat(group, member, partitions, held, server=group.members[member].server)


def settled(group: Group, partitions: int = PARTITIONS) -> Group:
    """The group after every member did so."""
    for member in group.order:
        group = acknowledged(group, member, partitions)
    return group

"""Groups for tests, and members that do what they are asked."""

from __future__ import annotations

from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, Held
from headrace.core.limits import MICROSECONDS

NOW_US = 1_700_000_000 * MICROSECONDS
SECOND = MICROSECONDS
PARTITIONS = 4


def group_of(
    *members: str, timeout_seconds: float = 30.0, now_us: int = NOW_US, max_poll_seconds: float = 300.0
) -> Group:
    """An open group of a topic with four partitions, whose members joined in this order and let nothing go yet."""
    group = Group("readers")
    for member in members:
        group = rules.join(group, member, timeout_seconds, now_us, PARTITIONS, max_poll_seconds)
    return group


def fixed(consumers: int) -> Group:
    return Group("readers", consumers)


def acknowledged(group: Group, member: str, now_us: int = NOW_US, partitions: int = PARTITIONS) -> Group:
    """The group after a member let go all that it was asked to."""
    held = Held(group.generation, rules.assigned(group, member, partitions))
    return rules.heartbeat(group, member, now_us, partitions, held)


def settled(group: Group, now_us: int = NOW_US, partitions: int = PARTITIONS) -> Group:
    """The group after every member did so."""
    for member in group.order:
        group = acknowledged(group, member, now_us, partitions)
    return group

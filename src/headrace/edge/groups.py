"""Groups whose members read several topics, for protocols that have such: who may be in one, and in which.

A right on a group is a right on a topic as that group. A group over several topics is the group of that name in each
of them, and belongs to those who may read, as this group, every topic that its members read. Callers who share no
topic and may not read each other's have two groups if they use the same name: neither notices the other. So a token can
do nothing to members that read a topic which it may not read, and cannot occupy a name before they come. Committed
offsets give nobody a right to a name, since each caller may commit under it in topics of its own.

Topics are keys (`core.names.topic_key`), or `*` for all of them. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import Final, Protocol, TypeVar

from headrace.core.rights import Caller, Grant
from headrace.edge.access import Principal
from headrace.edge.operations import OPERATIONS

# What members read of whom that is not known.
ALL_TOPICS: Final = "*"
_JOIN: Final = "join"


class TopicsGroup(Protocol):
    """A group of several topics: what its members read, and who they are."""

    @property
    def topics(self) -> Set[str]: ...

    @property
    def callers(self) -> Collection[Caller]: ...


G = TypeVar("G", bound=TopicsGroup)


def may_read_all(caller: Caller, group: str, topics: Iterable[str]) -> bool:
    """Whether the caller may be a member that reads these topics."""
    right = OPERATIONS[_JOIN].right
    assert right is not None
    return caller.may(right, ALL_TOPICS, group) or all(caller.may(right, topic, group) for topic in topics)


def unable(callers: Iterable[Caller], group: str, topics: Collection[str]) -> set[Caller]:
    """The callers who may not be members that read these topics. Many tokens with the same grants are one question."""
    if not topics:
        return set()
    by_grants: dict[tuple[Grant, ...], list[Caller]] = {}
    for caller in callers:
        by_grants.setdefault(caller.grants, []).append(caller)
    refused = (same for same in by_grants.values() if not may_read_all(same[0], group, topics))
    return {caller for same in refused for caller in same}


def require_all(principal: Principal, operation: str, group: str, topics: Iterable[str]) -> None:
    """Raise without the right that the operation needs on each of the topics."""
    for topic in topics:
        principal.require(operation, topic, group)


def have_common(topics: Set[str], others: Set[str]) -> bool:
    """Whether any topic is among both."""
    if ALL_TOPICS in topics or ALL_TOPICS in others:
        return bool(topics and others)
    return not others.isdisjoint(topics)


def group_of(principal: Principal, name: str, topics: Set[str], groups: Sequence[G]) -> G | None:
    """Of the groups of a name the one that a new member belongs to; None if it has one of its own.

    Raises if any of them reads a topic of the member's and another that the caller may not read.
    """
    common = [group for group in groups if have_common(topics, group.topics)]
    for group in common:
        require_all(principal, _JOIN, name, group.topics - topics)
    if common:
        return common[0]
    return next((group for group in groups if _are_peers(principal.caller, name, topics, group)), None)


def _are_peers(caller: Caller, name: str, topics: Set[str], group: TopicsGroup) -> bool:
    """Whether a caller and all members may read each other's topics; if these read none yet, what they may read."""
    if not group.topics:
        return all(each.grants == caller.grants for each in group.callers)
    may = may_read_all(caller, name, group.topics)
    return may and not unable([each for each in group.callers if each != caller], name, topics)

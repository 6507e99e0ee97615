"""Access rights on topics, groups and producer ids, granted by patterns.

`wire.operations` says which operation needs which right.

A grant gives rights on the topics that its pattern matches. It may be limited further:

- `groups`: operations on a group (joining, committing, seeking, …) only for groups that match. A `manage` grant that is
  limited to some groups manages those groups, and not the topic.
- `producers`: publishing with a producer id, or as a writer of commit keys, only for ids that match. Messages without
  a producer id may always be published.
- `forward_only`: commits only move a group forward, also in a protocol whose commits may move it back (Kafka's).

A producer id that a grant names, without a `*`, belongs to the tokens that name it (`ProducerOwners`). So the limit of
one token protects its id from all others: a message of theirs with a higher seqno would make duplicates of the owner's.

In a pattern `*` matches any characters. Topic names are case-insensitive; groups and producer ids are case-sensitive.
By default nothing is limited, so tokens that were created before the limits existed keep their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.limits import GRANTS_PER_TOKEN_MAX
from headrace.core.names import check_group_name, check_id, check_topic_name, composed, topic_key

ALL: Final = ("*",)


class Right(StrEnum):
    """What a token may allow on a topic; `manage` is creating, altering, deleting and moving groups."""

    PUBLISH = "publish"
    READ = "read"
    MANAGE = "manage"


# What a group needs some of.
_OF_GROUPS: Final = frozenset({Right.READ, Right.MANAGE})


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation needs.

    right: on its topic, or on all topics if it has none; without a right any authenticated caller may call.
    for_group: the right must hold for the group that is named.
    for_producer: the right must hold for the producer id, or the writer of commit keys, that is named.
    moves_back: the right must not be limited to moving forward; or `manage` must hold, which moves groups anywhere.
    any_right: any right on its topic is enough.
    full_access: every right on all topics, for all groups and producer ids.
    is_public: no authentication.
    is_audited: recorded in the audit log when done.
    """

    right: Right | None = None
    for_group: bool = False
    for_producer: bool = False
    moves_back: bool = False
    any_right: bool = False
    full_access: bool = False
    is_public: bool = False
    is_audited: bool = False


class Grant(msgspec.Struct, frozen=True):
    """Rights on the topics that a pattern matches, there for some groups and some producer ids."""

    pattern: str
    rights: frozenset[Right]
    groups: tuple[str, ...] = ALL
    producers: tuple[str, ...] = ALL
    forward_only: bool = False

    def gives(self, right: Right, topic_key: str, group: str | None, producer: str | None) -> bool:
        """Whether this grant gives the right."""
        if right not in self.rights or not _matches(self.pattern, True, topic_key):
            return False
        if producer and not _any_matches(self.producers, producer):
            return False
        if group is not None:
            return _any_matches(self.groups, composed(group))
        return right != Right.MANAGE or "*" in self.groups

    def names(self, producer: str) -> bool:
        """Whether the limit of producer ids names this one, or matches it by a pattern other than `*` alone."""
        return _any_matches([pattern for pattern in self.producers if pattern != "*"], producer)


class ProducerOwners:
    """The producer ids, and writers of commit keys, that tokens name: on the topics of these they belong to them.

    Only grants to publish count, and only whole names: what matches a pattern such as `till-*` belongs to nobody.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._topics: dict[str, set[str]] = {}
        for grant in grants:
            if Right.PUBLISH in grant.rights:
                for producer in grant.producers:
                    if "*" not in producer:
                        self._topics.setdefault(producer, set()).add(grant.pattern)

    def have(self, producer: str, topic_key: str) -> bool:
        """Whether an id belongs to the tokens that name it."""
        patterns = self._topics.get(producer)
        return patterns is not None and any(_matches(pattern, True, topic_key) for pattern in patterns)

    def __bool__(self) -> bool:
        return bool(self._topics)


NO_OWNERS: Final = ProducerOwners()


class Caller(msgspec.Struct, frozen=True):
    """An authenticated caller and its grants; with id and expiry of the token, if there is one.

    owners: the producer ids that it may use only if a grant names them.
    """

    name: str
    grants: tuple[Grant, ...]
    token_id: str | None = None
    expires_us: int | None = None
    owners: ProducerOwners = NO_OWNERS

    def may(self, right: Right, topic: str, group: str | None = None, producer: str | None = None) -> bool:
        """Whether any grant gives the right on the topic, there for a group or a producer id if one is named."""
        key = topic_key(topic)
        grants = self.grants
        if producer and right == Right.PUBLISH and self.owners.have(producer, key):
            grants = tuple(grant for grant in grants if grant.names(producer))
        return any(grant.gives(right, key, group, producer) for grant in grants)

    def may_see(self, topic: str) -> bool:
        """Whether any grant gives any right on the topic."""
        key = topic_key(topic)
        return any(grant.rights and _matches(grant.pattern, True, key) for grant in self.grants)

    def may_use_group(self, group: str) -> bool:
        """Whether any grant lets the caller read or manage as this group, on whatever topics."""
        name = composed(group)
        return any(grant.rights & _OF_GROUPS and _any_matches(grant.groups, name) for grant in self.grants)

    def may_move_back(self, topic: str, group: str) -> bool:
        """Whether a commit of the caller may move the group back on the topic."""
        key = topic_key(topic)
        free = (grant for grant in self.grants if not grant.forward_only)
        return any(grant.gives(Right.READ, key, group, None) for grant in free) or self.may(Right.MANAGE, topic, group)

    def require_any(self, topic: str) -> None:
        """Raise `Forbidden` without any right on the topic."""
        if not self.may_see(topic):
            raise Forbidden(self.name, "use", topic)

    def require_full_access(self) -> None:
        """Raise `Forbidden` if any right is missing: a caller who can create tokens could grant it to themselves."""
        if not has_full_access(self.grants):
            raise Forbidden(self.name, "administer", "*")

    def may_publish_as_anyone(self, topic: str) -> bool:
        """Whether the caller may use every producer id, so that batches need no check."""
        key = topic_key(topic)
        if self.owners:
            return False
        return any("*" in grant.producers and grant.gives(Right.PUBLISH, key, None, None) for grant in self.grants)

    def require(self, right: Right, topic: str, group: str | None = None, producer: str | None = None) -> None:
        """Raise `Forbidden` without the right; `*` as the topic means all topics."""
        if not self.may(right, topic, group, producer):
            raise Forbidden(self.name, right.value, topic, group or "", producer or "")


EVERYTHING = Grant("*", frozenset(Right))
# The caller if no tokens are configured, which is possible on loopback only.
ANYONE = Caller("anyone", (EVERYTHING,))


def has_full_access(grants: Iterable[Grant]) -> bool:
    """Whether grants give every right on all topics, for all groups and producer ids."""
    unlimited = [grant for grant in grants if "*" in grant.groups and "*" in grant.producers]
    return all(any(grant.gives(right, "*", None, None) for grant in unlimited) for right in Right)


def check_grants(
    grants: Iterable[tuple[str, Iterable[str]]],
    groups: Iterable[str] = ALL,
    producers: Iterable[str] = ALL,
    forward_only: bool = False,
) -> tuple[Grant, ...]:
    """Build grants from unchecked values; the limits apply to all of them."""
    grants, groups, producers = list(grants), list(groups), list(producers)
    for field, values in (("grants", grants), ("groups", groups), ("producers", producers)):
        if len(values) > GRANTS_PER_TOKEN_MAX:
            raise InvalidInput(field, str(len(values)), f"a token has at most {GRANTS_PER_TOKEN_MAX}")
    group_patterns = tuple(check_group_name(pattern) for pattern in groups)
    producer_patterns = tuple(check_id("producer pattern", pattern) for pattern in producers)
    checked = []
    for pattern, rights in grants:
        check_topic_name(pattern)
        try:
            given = frozenset(Right(right) for right in rights)
        except ValueError:
            raise InvalidInput("rights", repr(list(rights)), f"rights are {', '.join(Right)}") from None
        checked.append(Grant(pattern, given, group_patterns, producer_patterns, forward_only))
    if not checked:
        raise InvalidInput("grants", "none", "a token needs at least one right on some topic")
    return tuple(checked)


def _any_matches(patterns: Iterable[str], name: str) -> bool:
    return any(pattern == "*" or _matches(pattern, False, name) for pattern in patterns)


def _matches(pattern: str, is_topic: bool, name: str) -> bool:
    """Whether a pattern, in which `*` stands for any characters, matches a name, however long that is.

    Each part is looked for behind the one before: unlike a regular expression that never takes a step back.
    """
    first, *parts = _parts(pattern, is_topic)
    if not parts:
        return name == first
    *inside, last = parts
    place, end = len(first), len(name) - len(last)
    if place > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in inside:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


@lru_cache(maxsize=4096)
def _parts(pattern: str, is_topic: bool) -> tuple[str, ...]:
    return tuple((topic_key(pattern) if is_topic else pattern).split("*"))

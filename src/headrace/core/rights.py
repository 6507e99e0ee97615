"""Who may do what: rights on topics, given by patterns.

A pattern is a topic name in which `*` stands for any characters; case does not count, as in topic names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

import msgspec

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.names import check_topic_name, topic_key


class Right(StrEnum):
    """What a token may allow on a topic; `manage` is creating, altering, deleting and moving groups."""

    PUBLISH = "publish"
    READ = "read"
    MANAGE = "manage"


class Grant(msgspec.Struct, frozen=True):
    """Rights on the topics that a pattern matches."""

    pattern: str
    rights: frozenset[Right]


class Caller(msgspec.Struct, frozen=True):
    """Someone who came in, and what they may do."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, right: Right, topic: str) -> bool:
        """Whether any grant gives the right on the topic."""
        key = topic_key(topic)
        return any(right in grant.rights and _matcher(grant.pattern).fullmatch(key) for grant in self.grants)

    def may_see(self, topic: str) -> bool:
        """Whether any grant gives any right on the topic."""
        return any(self.may(right, topic) for right in Right)

    def require(self, right: Right, topic: str) -> None:
        """Refuse without the right; `*` as the topic means all of them."""
        if not self.may(right, topic):
            raise Forbidden(self.name, right.value, topic)


EVERYTHING = Grant("*", frozenset(Right))
# Who comes in where no tokens are configured: that is on loopback only.
ANYONE = Caller("anyone", (EVERYTHING,))


def check_grants(grants: Iterable[tuple[str, Iterable[str]]]) -> tuple[Grant, ...]:
    """Grants from loose values, every one checked."""
    checked = []
    for pattern, rights in grants:
        check_topic_name(pattern)
        try:
            checked.append(Grant(pattern, frozenset(Right(right) for right in rights)))
        except ValueError:
            raise InvalidInput("rights", repr(list(rights)), f"they are {', '.join(Right)}") from None
    if not checked:
        raise InvalidInput("grants", "none", "a token needs at least one right on some topic")
    return tuple(checked)


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> re.Pattern[str]:
    parts = topic_key(pattern).split("*")
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)

"""Who may be in a group of several topics, and in which of those that have its name."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass

import pytest

from headrace.core.errors import Forbidden
from headrace.core.rights import ANYONE, Caller, check_grants
from headrace.edge.access import Principal
from headrace.edge.groups import ALL_TOPICS, group_of, have_common, may_read_all, require_all, unable


@dataclass(frozen=True)
class Group:
    topics: Set[str]
    callers: Collection[Caller]


def token(name: str, *topics: str, groups: tuple[str, ...] = ("*",)) -> Caller:
    return Caller(name, check_grants([(topic, ["read"]) for topic in topics], groups))


ANN, BOB, BOTH = token("ann", "a*"), token("bob", "b*"), token("both", "a*", "b*")
OF_ANN, OF_BOB = Group({"a1", "a2"}, [ANN]), Group({"b1"}, [BOB])


def found(caller: Caller, topics: set[str], *groups: Group) -> Group | None:
    return group_of(Principal(caller, "here"), "g", topics, groups)


def test_all_topics_must_be_readable_as_the_group() -> None:
    assert may_read_all(ANN, "g", ["a1", "a2"]) and may_read_all(ANN, "g", [])
    assert not may_read_all(ANN, "g", ["a1", "b1"])
    limited = token("limited", "*", groups=("mine-*",))
    assert may_read_all(limited, "mine-1", ["a", ALL_TOPICS]) and not may_read_all(limited, "g", ["a"])
    require_all(Principal(ANN, "here"), "heartbeat", "g", ["a1"])
    with pytest.raises(Forbidden, match="to read 'b1' for group 'g'"):
        require_all(Principal(ANN, "here"), "heartbeat", "g", ["a1", "b1"])


def test_members_of_unknown_topics_have_all_in_common() -> None:
    assert have_common({"a"}, {"a", "b"}) and not have_common({"a"}, {"b"})
    assert have_common({ALL_TOPICS}, {"b"}) and have_common({"a"}, {ALL_TOPICS})
    assert not have_common({ALL_TOPICS}, set()) and not have_common(set(), {"a"})


def test_a_member_comes_to_the_group_of_its_peers() -> None:
    for topics in ({"a1"}, {"a3"}, set[str]()):
        assert found(ANN, topics, OF_BOB, OF_ANN) is OF_ANN
    assert found(ANN, {"a1"}, OF_BOB) is None
    # Of those that read nothing yet it is not known what they will: only the same grants are as good.
    idle = Group(set(), [ANN])
    for topics in (set[str](), {"a1"}):
        assert found(BOTH, topics, idle) is None
        assert found(token("ann-2", "a*"), topics, idle) is idle
    # Who may read more comes to them where it reads what they do.
    assert found(BOTH, {"a1", "b2"}, OF_BOB, OF_ANN) is OF_ANN
    assert found(BOTH, {"b2"}, OF_ANN, OF_BOB) is OF_BOB
    assert found(ANYONE, {ALL_TOPICS}, OF_ANN) is OF_ANN


def test_who_may_read_only_some_topics_of_a_group_is_refused() -> None:
    mixed = Group({"a1", "b1"}, [BOTH])
    for caller, topic in ((ANN, "a1"), (BOB, "b1")):
        with pytest.raises(Forbidden):
            found(caller, {topic}, mixed)
        # With others of its topics it has nothing to do with them.
        assert found(caller, {topic[0] + "9"}, mixed) is None
    with pytest.raises(Forbidden):
        found(ANN, {"a1"}, Group({ALL_TOPICS}, [ANYONE]))


def test_tokens_with_the_same_grants_are_asked_for_once() -> None:
    fleet = [token(f"till-{number}", "a*") for number in range(100)]
    assert unable([*fleet, BOB], "g", ["a1"]) == {BOB}
    assert unable([*fleet, BOB], "g", ["b1"]) == set(fleet)
    assert unable([*fleet, BOB], "g", []) == set()

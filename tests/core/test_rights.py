"""Rights on topics: what a pattern matches, and what loose grants are refused for."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.rights import ANYONE, Caller, Grant, Right, check_grants


def caller(*grants: tuple[str, list[str]]) -> Caller:
    return Caller("ann", check_grants(grants))


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("orders", "orders"),
        ("Orders", "oRDERS"),
        ("*", "anything at all"),
        ("*", "*"),
        ("team-*", "team-"),
        ("team-*", "Team-A"),
        ("*-log", "a/b-log"),
        ("a*c*e", "abcde"),
        ("a*", "a\nb"),
        ("a.b", "A.B"),
        ("STRASSE*", "straße 1"),
        ("café", "cafe\N{COMBINING ACUTE ACCENT}"),
    ],
)
def test_a_pattern_matches(pattern: str, topic: str) -> None:
    assert caller((pattern, ["read"])).may(Right.READ, topic)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("orders", "orders2"),
        ("orders", "my orders"),
        ("a.b", "axb"),
        ("team-*", "team"),
        ("*-log", "log"),
        ("[a-z]", "a"),
        ("a?", "ab"),
        ("a|b", "a"),
        ("orders", "*"),
        ("team-*", "*"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, topic: str) -> None:
    assert not caller((pattern, ["read"])).may(Right.READ, topic)


def test_a_right_does_not_give_another() -> None:
    for given in Right:
        one = caller(("orders", [given.value]))
        assert [right for right in Right if one.may(right, "orders")] == [given]


def test_grants_add_up() -> None:
    ann = caller(("orders", ["read"]), ("o*", ["publish"]), ("logs", ["manage"]))
    assert [right for right in Right if ann.may(right, "orders")] == [Right.PUBLISH, Right.READ]
    assert [right for right in Right if ann.may(right, "other")] == [Right.PUBLISH]
    assert [topic for topic in ("orders", "other", "logs", "secret") if ann.may_see(topic)] == [
        "orders",
        "other",
        "logs",
    ]


def test_a_right_that_is_required_and_missing_is_named() -> None:
    ann = caller(("orders", ["read"]))
    ann.require(Right.READ, "ORDERS")
    with pytest.raises(Forbidden) as caught:
        ann.require(Right.MANAGE, "orders")
    assert caught.value.details() == {"caller": "ann", "right": "manage", "topic": "orders"}


def test_anyone_may_do_everything() -> None:
    assert all(ANYONE.may(right, topic) for right in Right for topic in ("orders", "*", "🐎"))


def test_grants_are_checked_and_kept() -> None:
    rights = frozenset({Right.READ, Right.PUBLISH})
    assert check_grants([("Team-*", ["read", "publish", "read"])]) == (Grant("Team-*", rights),)


@pytest.mark.parametrize(
    ("grants", "field"),
    [
        ([], "grants"),
        ([("", ["read"])], "topic name"),
        ([("x" * 256, ["read"])], "topic name"),
        ([("a\nb", ["read"])], "topic name"),
        ([(5, ["read"])], "topic name"),
        ([("orders", ["write"])], "rights"),
        ([("orders", ["READ"])], "rights"),
        ([("orders", [None])], "rights"),
        ([("orders", ["read"]), ("logs", ["all"])], "rights"),
    ],
)
def test_grants_that_make_no_sense_are_refused(grants: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_grants(grants)
    assert caught.value.field == field

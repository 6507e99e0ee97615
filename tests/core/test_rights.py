"""Rights on topics: what a pattern matches, and what loose grants are refused for."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Forbidden, InvalidInput
from headrace.core.limits import GRANTS_PER_TOKEN_MAX
from headrace.core.rights import ANYONE, Caller, Grant, ProducerOwners, Right, check_grants, has_full_access


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
        ("abc*cde", "abcde"),
        ("a*b*b", "ab"),
        ("a*bc*c", "abc"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, topic: str) -> None:
    assert not caller((pattern, ["read"])).may(Right.READ, topic)


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
@settings(deadline=None, max_examples=500)
def test_an_asterisk_is_any_number_of_characters(pattern: str, topic: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert caller((pattern, ["read"])).may(Right.READ, topic) == (re.fullmatch(expression, topic) is not None)


def test_a_pattern_is_compared_in_one_pass_with_a_name_of_any_length() -> None:
    """A regular expression would try each place for each part: hours."""
    ann = caller(("a*b*a*b*c", ["read"]))
    assert not ann.may(Right.READ, "ab" * 50_000)
    assert ann.may(Right.READ, "ab" * 50_000 + "c")


def test_a_right_does_not_give_another() -> None:
    for each in Right:
        one = caller(("orders", [each.value]))
        assert [right for right in Right if one.may(right, "orders")] == [each]


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
    nothing = {"group": "", "producer_id": ""}
    assert caught.value.details() == {"caller": "ann", "right": "manage", "topic": "orders", **nothing}


def test_a_group_moves_back_unless_that_is_forbidden() -> None:
    def token(rights: list[str], forward_only: bool) -> Caller:
        return Caller("ann", check_grants([("orders", rights)], groups=["b*"], forward_only=forward_only))

    assert token(["read"], False).may_move_back("Orders", "billing")
    assert not token(["read"], False).may_move_back("orders", "other")
    assert not token(["read"], True).may_move_back("orders", "billing")
    # Who manages a group seeks it anyway.
    assert token(["read", "manage"], True).may_move_back("orders", "billing")
    assert not token(["publish"], False).may_move_back("orders", "billing")
    both = Caller("ann", token(["read"], True).grants + token(["read"], False).grants)
    assert both.may_move_back("orders", "billing")
    stored = msgspec.json.encode(token(["read"], True).grants)
    assert msgspec.json.decode(stored, type=tuple[Grant, ...])[0].forward_only
    older = b'[{"pattern":"orders","rights":["read"]}]'
    assert not msgspec.json.decode(older, type=tuple[Grant, ...])[0].forward_only


def test_any_right_on_a_topic_is_enough_to_use_it() -> None:
    ann = caller(("orders", ["read"]))
    ann.require_any("ORDERS")
    with pytest.raises(Forbidden) as caught:
        ann.require_any("payments")
    assert (caught.value.right, caught.value.topic) == ("use", "payments")


def test_a_grant_may_be_limited_to_some_groups() -> None:
    ann = Caller("ann", check_grants([("orders", ["read", "manage"])], groups=["ann-*", "café"]))
    assert ann.may(Right.READ, "orders")
    assert ann.may(Right.READ, "orders", group="ann-1")
    assert ann.may(Right.MANAGE, "orders", group="cafe\N{COMBINING ACUTE ACCENT}")
    assert not ann.may(Right.READ, "orders", group="billing")
    assert not ann.may(Right.READ, "orders", group="ANN-1")
    with pytest.raises(Forbidden, match="for group 'billing'"):
        ann.require(Right.MANAGE, "orders", group="billing")


def test_a_right_to_manage_some_groups_does_not_manage_the_topic() -> None:
    ann = Caller("ann", check_grants([("orders", ["manage"])], groups=["ann-*"]))
    assert not ann.may(Right.MANAGE, "orders")
    assert ann.may_see("orders")


def test_a_grant_may_be_limited_to_some_producer_ids() -> None:
    till = Caller("till", check_grants([("orders", ["publish"])], producers=["till-7", "till-7/*"]))
    assert till.may(Right.PUBLISH, "orders")
    assert till.may(Right.PUBLISH, "orders", producer="")
    assert till.may(Right.PUBLISH, "orders", producer="till-7/a")
    assert not till.may_publish_as_anyone("orders")
    assert not till.may_publish_as_anyone("other")
    assert caller(("orders", ["publish"])).may_publish_as_anyone("orders")
    with pytest.raises(Forbidden, match="as producer 'till-8'"):
        till.require(Right.PUBLISH, "orders", producer="till-8")


def test_a_producer_id_that_a_token_names_belongs_to_it() -> None:
    till = check_grants([("orders*", ["publish"])], producers=["till-7", "till-7/*"])
    clerk = check_grants([("*", ["read"])], producers=["clerk"])
    owners = ProducerOwners([*till, *clerk])
    everyone = check_grants([("*", ["publish", "manage"])])
    fleet = check_grants([("*", ["publish"])], producers=["till-*"])
    both = check_grants([("orders", ["publish"])], producers=["*", "till-7"])
    for grants, may in ((till, True), (everyone, False), (fleet, True), (both, True), ((*everyone, *till), True)):
        ann = Caller("ann", grants, owners=owners)
        assert ann.may(Right.PUBLISH, "ORDERS", producer="till-7") == may
        assert ann.may(Right.PUBLISH, "orders") and ann.may(Right.PUBLISH, "orders", producer="")
        assert not ann.may_publish_as_anyone("orders")
    other = Caller("ann", everyone, owners=owners)
    assert other.may(Right.PUBLISH, "bills", producer="till-7"), "there the owner has no right itself"
    assert other.may(Right.PUBLISH, "orders", producer="till-7/a"), "a pattern names nobody"
    assert other.may(Right.PUBLISH, "orders", producer="clerk"), "a reader publishes nothing"
    assert other.may(Right.MANAGE, "orders", producer="till-7")
    with pytest.raises(Forbidden, match="by name is refused to all others"):
        other.require(Right.PUBLISH, "orders", producer="till-7")


def test_grants_from_before_the_limits_existed_have_none() -> None:
    old = msgspec.json.decode(b'{"pattern":"orders","rights":["publish"]}', type=Grant)
    assert old == Grant("orders", frozenset({Right.PUBLISH}), ("*",), ("*",))


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


def test_patterns_that_no_name_could_have_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"groups": [""]}, "group name"),
        ({"producers": ["a\n"]}, "producer pattern"),
    ]
    for limits, field in wrong:
        with pytest.raises(InvalidInput) as caught:
            check_grants([("orders", ["read"])], **limits)
        assert caught.value.field == field


def test_a_token_has_a_bounded_number_of_grants_groups_and_producers() -> None:
    read = ("orders", ["read"])
    at_limit = [f"g{i}" for i in range(GRANTS_PER_TOKEN_MAX)]
    assert check_grants([read], at_limit, at_limit)[0].producers[-1] == at_limit[-1]
    beyond = [*at_limit, "one-more"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"grants": [read] * len(beyond)}, "grants"),
        ({"grants": [read], "groups": beyond}, "groups"),
        ({"grants": [read], "producers": beyond}, "producers"),
    ]
    for values, field in wrong:
        with pytest.raises(InvalidInput, match=f"at most {GRANTS_PER_TOKEN_MAX}") as caught:
            check_grants(**values)
        assert caught.value.field == field


def test_any_right_on_a_topic_is_enough_where_that_is_asked_for() -> None:
    ann = caller(("orders", ["publish"]))
    ann.require_any("Orders")
    with pytest.raises(Forbidden, match="no right to use 'other'"):
        ann.require_any("other")


def test_full_access_is_every_right_everywhere_without_limits() -> None:
    ANYONE.require_full_access()
    caller(("*", ["publish"]), ("*", ["read", "manage"])).require_full_access()
    everything = [("*", [right.value for right in Right])]
    for limited in (
        caller(("*", ["read", "manage"])),
        caller(("orders*", ["publish", "read", "manage"])),
        Caller("ann", check_grants(everything, groups=["billing"])),
        Caller("ann", check_grants(everything, producers=["till-7"])),
    ):
        assert not has_full_access(limited.grants)
        with pytest.raises(Forbidden):
            limited.require_full_access()


def test_a_group_may_be_used_by_who_reads_or_manages_as_it() -> None:
    limited = Caller("ann", check_grants([("orders", ["read"])], groups=["team-*"]))
    assert limited.may_use_group("team-a") and not limited.may_use_group("other")
    assert caller(("orders", ["manage"])).may_use_group("any")
    assert not caller(("orders", ["publish"])).may_use_group("any")

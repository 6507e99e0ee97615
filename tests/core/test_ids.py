"""Ids of the queue API: how they are made, and that every part of one that comes back is checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import IdNotFound
from headrace.core.ids import NUMBER_DIGITS_MAX, Kind, check_id_of, make_id, number_of, topic_id_of

KINDS: list[Kind] = ["consumer", "producer"]
NUMBERS = st.integers(1, 10**NUMBER_DIGITS_MAX - 1)
TOPIC_IDS = st.integers(1, 10**9 - 1)


@pytest.mark.parametrize(
    ("kind", "number", "topic_id", "expected"),
    [
        ("consumer", 1, 1, 1_000000001_0),
        ("producer", 1, 1, 1_000000001_1),
        ("consumer", 12, 345, 12_000000345_0),
        ("producer", 10**18 - 1, 10**9 - 1, int("9" * 27 + "1")),
    ],
)
def test_an_id_is_number_then_topic_then_kind(kind: Kind, number: int, topic_id: int, expected: int) -> None:
    assert make_id(kind, number, topic_id) == expected
    assert (number_of(expected), topic_id_of(expected)) == (number, topic_id)


@given(st.sampled_from(KINDS), NUMBERS, TOPIC_IDS)
def test_an_id_has_10_to_28_digits_and_comes_back_as_its_number(kind: Kind, number: int, topic_id: int) -> None:
    made = make_id(kind, number, topic_id)
    assert 10 <= len(str(made)) <= 28
    assert check_id_of(kind, made, topic_id, number) == number


@given(st.sampled_from(KINDS), NUMBERS, TOPIC_IDS, st.sampled_from(KINDS), NUMBERS, TOPIC_IDS)
def test_different_participants_have_different_ids(
    kind: Kind, number: int, topic_id: int, other_kind: Kind, other_number: int, other_topic_id: int
) -> None:
    one, other = (kind, number, topic_id), (other_kind, other_number, other_topic_id)
    assert (make_id(*one) == make_id(*other)) == (one == other)


@given(st.sampled_from(KINDS), st.integers(), TOPIC_IDS, st.integers(0, 1000))
def test_whatever_is_accepted_was_given_out(kind: Kind, value: int, topic_id: int, given_out: int) -> None:
    try:
        number = check_id_of(kind, value, topic_id, given_out)
    except IdNotFound:
        assert value not in {make_id(kind, number, topic_id) for number in range(1, given_out + 1)}
    else:
        assert 1 <= number <= given_out
        assert make_id(kind, number, topic_id) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (make_id("producer", 1, 7), "it is not the id of a consumer"),
        (make_id("consumer", 1, 7) + 5, "it is not the id of a consumer"),
        (make_id("consumer", 1, 8), "it is not the id of a consumer of this topic"),
        (make_id("consumer", 4, 7), "this topic has no consumer with this id: register first"),
        (make_id("consumer", 0, 7), "this topic has no consumer with this id: register first"),
        (make_id("consumer", 10**18 - 1, 7), "this topic has no consumer with this id: register first"),
        (make_id("consumer", -1, 7), "this topic has no consumer with this id: register first"),
        (0, "it is not the id of a consumer of this topic"),
        (-10, "it is not the id of a consumer of this topic"),
        (-1, "it is not the id of a consumer"),
    ],
)
def test_each_part_is_checked(value: int, reason: str) -> None:
    with pytest.raises(IdNotFound) as caught:
        check_id_of("consumer", value, 7, 3)
    assert caught.value.details() == {"kind": "consumer", "id": str(value), "reason": reason}
    assert str(caught.value) == f"consumer_id is {value}: {reason}"


@pytest.mark.parametrize("value", [10**28, -(10**29), 10**10_000], ids=["first", "negative", "beyond text"])
def test_what_is_longer_than_any_id_is_not_repeated(value: int) -> None:
    with pytest.raises(IdNotFound) as caught:
        check_id_of("producer", value + 1, 7, 3)
    assert caught.value.id == "longer than any id"

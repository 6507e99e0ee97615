"""Positions as text: whatever is written is read back, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX, SEQNO_MAX
from headrace.core.positions import format_pairs, parse_pairs
from headrace.protocols.http.requests.positions import (
    Position,
    format_event_id,
    listed,
    mapped,
    parse_event_id,
)

POSITIONS = st.dictionaries(st.integers(0, PARTITIONS_MAX - 1), st.integers(0, SEQNO_MAX), max_size=20)


@given(POSITIONS.filter(bool))
def test_positions_are_read_as_they_were_written(positions: dict[int, int]) -> None:
    assert parse_pairs("from", format_pairs(positions)) == positions


@given(POSITIONS)
def test_positions_are_listed_by_partition(positions: dict[int, int]) -> None:
    found = listed(positions)
    assert [position.partition for position in found] == sorted(positions)
    assert mapped("offsets", found) == positions


@given(st.integers(0, SEQNO_MAX), POSITIONS, st.none() | st.integers(0, 10**18 - 1))
def test_an_event_id_leaves_out_only_what_is_at_the_beginning(
    topic_id: int, positions: dict[int, int], generation: int | None
) -> None:
    text = format_event_id(topic_id, positions, generation)
    found_id, found_generation, found = parse_event_id(text)
    assert (found_id, found_generation) == (topic_id, generation)
    assert {partition: found.get(partition, 0) for partition in positions} == positions
    assert text.isascii() and not set(text) & set("\r\n\0")


@given(st.text(alphabet="0123456789:,; x-+\n٣", max_size=15))
def test_other_texts_are_refused(text: str) -> None:
    try:
        positions = parse_pairs("from", text)
    except InvalidInput as error:
        assert error.field == "from"
    else:
        assert parse_pairs("from", format_pairs(positions)) == positions


@pytest.mark.parametrize(
    "text", ["", ";", "7", "x;0:1", "7;0", "7;0:1,", "7;0:1,0:2", "-7;0:1", "7;0:99999999999999999999"]
)
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Last-Event-ID"):
        parse_event_id(text)


def test_a_partition_may_be_named_once() -> None:
    with pytest.raises(InvalidInput, match="once"):
        mapped("offsets", [Position(0, 1), Position(0, 2)])

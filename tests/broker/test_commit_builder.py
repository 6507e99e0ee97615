"""Building a commit of several requests, as a log does that may have to ask twice."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.broker.publish.commit_builder import CommitBuilder
from headrace.broker.publish.commit_queue import BatchParts, Fence, Request
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import CommitConflict, InvalidMessage, MessageTooLarge, ProducerFenced, SeqnoJump
from headrace.core.limits import SEQNO_JUMP_MAX
from headrace.core.publish.state import CommitKey, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import TopicRecord
from headrace.storage.fences import LocalFences
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, numbered

TOPIC = TopicRecord(1, "orders", "orders", 1, DEFAULT_SETTINGS, 0)


def builder_of(*requests: Request) -> CommitBuilder:
    return CommitBuilder(requests, TOPIC, BrokerSettings(), SettableClock())


def built(builder: CommitBuilder, state: TopicState, fences: LocalFences) -> list[bytes]:
    """The values that are written."""
    commits = builder.build(state, fences)
    return [value for commit in commits for value in commit.rows.column("value").to_pylist()]


@pytest.mark.parametrize("alike", [True, False])
def test_what_was_refused_stays_refused_when_a_log_asks_again(alike: bool) -> None:
    """A connection may break after the first answer; then the others must not get the rows of the refused ones."""
    state, fences = TopicState(np.zeros(1, np.int64)), LocalFences()
    for commit in builder_of(Request([numbered(b"first", producer="jumping")])).build(state, fences):
        state.apply(commit)
    fences.put(("fenced", ""), 7)
    requests = [
        Request([numbered(b"jump", producer="jumping", first=SEQNO_JUMP_MAX + 9)]),
        Request([numbered(b"a", b"b", producer="a")]),
        Request([numbered(b"late", producer="fenced")], fence=Fence(("fenced", ""), 6)),
        Request([numbered(b"c", producer="c") if alike else batch(b"c")]),
    ]
    builder = builder_of(*requests)
    assert built(builder, state, fences) == built(builder, state, fences) == [b"a", b"b", b"c"]
    summary = builder.answer()
    assert [type(request.error) for request in requests] == [SeqnoJump, type(None), ProducerFenced, type(None)]
    assert [None if each.receipts is None else each.receipts.offset.tolist() for each in requests] == [
        None,
        [1, 2],
        None,
        [3],
    ]
    assert summary.messages == summary.counts["messages_written"] == 3


def test_the_only_good_request_of_several_gets_its_own_rows() -> None:
    requests = [Request([batch(b"bad", partition=[5])]), Request([batch(b"good", partition=[0])])]
    builder = builder_of(*requests)
    assert built(builder, TopicState(np.zeros(1, np.int64)), LocalFences()) == [b"good"]
    builder.answer()
    assert isinstance(requests[0].error, InvalidMessage)
    assert requests[1].receipts is not None


def test_of_two_with_one_key_and_other_fingerprints_the_second_is_refused() -> None:
    keys = [CommitKey("sink", 1, 7), CommitKey("sink", 1, 8), CommitKey("sink", 1, 7), CommitKey("sink", 0, 7)]
    requests = [Request([batch(b"%d" % place)], key) for place, key in enumerate(keys)]
    builder = builder_of(*requests)
    assert built(builder, TopicState(np.zeros(1, np.int64)), LocalFences()) == [b"0"]
    builder.answer()
    assert [type(request.error) for request in requests] == [type(None), CommitConflict, type(None), CommitConflict]


@pytest.mark.parametrize("alike", [True, False])
def test_parts_that_break_a_rule_are_refused_and_the_others_keep_their_place(alike: bool) -> None:
    state, fences = TopicState(np.zeros(1, np.int64)), LocalFences()
    large = b"x" * (DEFAULT_SETTINGS.message_bytes_max + 1)
    requests = [
        Request([batch(b"a", large, b"b", b"c", b"d", partition=0)], parts=BatchParts([1, 2, 1, 1])),
        Request([batch(b"e", partition=0) if alike else batch(b"e")]),
        Request([batch(large, large, partition=0)], parts=BatchParts([1, 1])),
        Request([batch(b"f", b"g", partition=0)], parts=BatchParts([1, 1])),
    ]
    builder = builder_of(*requests)
    assert built(builder, state, fences) == [b"a", b"c", b"d", b"e", b"f", b"g"]
    builder.answer()
    assert [
        each.parts and {place: type(error) for place, error in each.parts.refused.items()} for each in requests
    ] == [
        {1: MessageTooLarge},
        None,
        {0: MessageTooLarge, 1: MessageTooLarge},
        {},
    ]
    assert [None if each.receipts is None else each.receipts.offset.tolist() for each in requests] == [
        [0, 1, 2],
        [3],
        None,
        [4, 5],
    ]
    assert isinstance(requests[2].error, MessageTooLarge)

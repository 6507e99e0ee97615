"""Building a commit of several submissions, as a log does that may have to ask twice."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.broker.publish.commit_builder import CommitBuilder
from headrace.broker.publish.parts import PassedNumbers
from headrace.broker.publish.submission import Fence, Lane, Submission
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import CommitConflict, InvalidMessage, MessageTooLarge, ProducerFenced, SeqnoJump
from headrace.core.limits import SEQNO_JUMP_MAX
from headrace.core.publish.state import CommitKey, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import TopicRecord
from headrace.storage.commits.fences import LocalFences
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, numbered

TOPIC = TopicRecord(1, "orders", "orders", 1, DEFAULT_SETTINGS, 0)


def builder_of(*submissions: Submission) -> CommitBuilder:
    return CommitBuilder(submissions, TOPIC, BrokerSettings(), SettableClock(), PassedNumbers())


def built(builder: CommitBuilder, state: TopicState, fences: LocalFences) -> list[bytes]:
    """The values that are written."""
    commits = builder.build(state, fences)
    return [value for commit in commits for value in commit.rows.column("value").to_pylist()]


@pytest.mark.parametrize("alike", [True, False])
def test_what_was_refused_stays_refused_when_a_log_asks_again(alike: bool) -> None:
    """A connection may break after the first answer; then the others must not get the rows of the refused ones."""
    state, fences = TopicState(np.zeros(1, np.int64)), LocalFences()
    for commit in builder_of(Submission([numbered(b"first", producer="jumping")])).build(state, fences):
        state.apply(commit)
    fences.put(("fenced", ""), 7)
    submissions = [
        Submission([numbered(b"jump", producer="jumping", first=SEQNO_JUMP_MAX + 9)]),
        Submission([numbered(b"a", b"b", producer="a")]),
        Submission([numbered(b"late", producer="fenced")], fence=Fence(("fenced", ""), 6)),
        Submission([numbered(b"c", producer="c") if alike else batch(b"c")]),
    ]
    builder = builder_of(*submissions)
    assert built(builder, state, fences) == built(builder, state, fences) == [b"a", b"b", b"c"]
    summary = builder.answer()
    assert [type(submission.error) for submission in submissions] == [SeqnoJump, type(None), ProducerFenced, type(None)]
    assert [None if each.receipts is None else each.receipts.offset.tolist() for each in submissions] == [
        None,
        [1, 2],
        None,
        [3],
    ]
    assert summary.messages == summary.counts["messages_written"] == 3


def test_the_only_good_submission_of_several_gets_its_own_rows() -> None:
    submissions = [Submission([batch(b"bad", partition=[5])]), Submission([batch(b"good", partition=[0])])]
    builder = builder_of(*submissions)
    assert built(builder, TopicState(np.zeros(1, np.int64)), LocalFences()) == [b"good"]
    builder.answer()
    assert isinstance(submissions[0].error, InvalidMessage)
    assert submissions[1].receipts is not None


def test_of_two_with_one_key_and_other_fingerprints_the_second_is_refused() -> None:
    keys = [CommitKey("sink", 1, 7), CommitKey("sink", 1, 8), CommitKey("sink", 1, 7), CommitKey("sink", 0, 7)]
    submissions = [Submission([batch(b"%d" % place)], key) for place, key in enumerate(keys)]
    builder = builder_of(*submissions)
    assert built(builder, TopicState(np.zeros(1, np.int64)), LocalFences()) == [b"0"]
    builder.answer()
    assert [type(submission.error) for submission in submissions] == [
        type(None),
        CommitConflict,
        type(None),
        CommitConflict,
    ]


def test_nothing_is_written_behind_a_failure_in_the_same_lane() -> None:
    """A lane with commit keys: the second conflicts, so the third must be sent again after it."""
    keys = [CommitKey("sink", 1, 7), CommitKey("sink", 1, 8), CommitKey("sink", 2, 7)]
    lane = Lane()
    submissions = [Submission([batch(b"%d" % place)], key, lane=lane) for place, key in enumerate(keys)]
    other = Submission([batch(b"other")])
    for number, submission in enumerate(submissions, 1):
        submission.number = number
    builder = builder_of(*submissions, other)
    state = TopicState(np.zeros(1, np.int64))
    assert built(builder, state, LocalFences()) == built(builder, state, LocalFences()) == [b"other", b"0"]
    builder.answer()
    kinds = [type(submission.error) for submission in submissions]
    assert kinds == [type(None), CommitConflict, CommitConflict]
    assert isinstance(lane.broken, CommitConflict)
    assert (submissions[0].receipts is not None, other.error) == (True, None)


def test_a_bad_message_does_not_end_its_lane() -> None:
    lane = Lane()
    submissions = [Submission([batch(b"bad", partition=[5])], lane=lane), Submission([batch(b"good")], lane=lane)]
    for number, submission in enumerate(submissions, 1):
        submission.number = number
    builder = builder_of(*submissions)
    assert built(builder, TopicState(np.zeros(1, np.int64)), LocalFences()) == [b"good"]
    assert (type(submissions[0].error), lane.broken) == (InvalidMessage, None)


@pytest.mark.parametrize("value", [b"good", b"x" * (DEFAULT_SETTINGS.message_bytes_max + 1)])
def test_single_values_are_checked_together_and_one_by_one_if_need_be(value: bytes) -> None:
    state = TopicState(np.zeros(1, np.int64))
    values = [b"a", b"b", value, b"c"]
    submissions = [Submission(value=each) for each in values]
    mixed = [*submissions[:2], Submission([numbered(b"n")]), *submissions[2:]]
    builder = builder_of(*mixed)
    written = built(builder, state, LocalFences())
    builder.answer()
    is_good = value == b"good"
    assert written == [b"a", b"b", b"n", *([value] if is_good else []), b"c"]
    assert [each.receipts is not None for each in mixed] == [True, True, True, is_good, True]
    assert isinstance(submissions[2].error, type(None) if is_good else MessageTooLarge)

"""Which failures are worth another attempt, and which requests may have one."""

from __future__ import annotations

import pytest

from headrace.core.errors import (
    AnswerLost,
    Closed,
    DiskFull,
    HeadraceError,
    InvalidInput,
    OutcomeUnknown,
    Overloaded,
    ServerFailed,
    StoreUnavailable,
    TopicNotFound,
    Unreachable,
)
from headrace.core.retry import is_transient, may_repeat

NOTHING_DONE = [
    Overloaded("the queue", 10, 1.0),
    Unreachable("127.0.0.1:7071", "refused"),
    DiskFull("orders", "no space left"),
]
UNKNOWN = [
    AnswerLost("127.0.0.1:7071", "reset"),
    OutcomeUnknown("orders", "sync"),
    StoreUnavailable("postgresql", "the connection was lost"),
    Closed("the server"),
]
FINAL = [InvalidInput("offset", "-1", "rule"), TopicNotFound("orders"), ServerFailed("bug"), Closed("the client")]


@pytest.mark.parametrize("error", NOTHING_DONE, ids=lambda error: error.code)
def test_what_was_not_done_may_always_be_repeated(error: HeadraceError) -> None:
    assert may_repeat(error, is_repeatable=False)
    assert may_repeat(error, is_repeatable=True)


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: error.code)
def test_an_unknown_outcome_is_repeated_only_if_twice_is_as_good_as_once(error: HeadraceError) -> None:
    assert is_transient(error)
    assert not may_repeat(error, is_repeatable=False)
    assert may_repeat(error, is_repeatable=True)


@pytest.mark.parametrize("error", FINAL, ids=lambda error: error.code)
def test_what_cannot_succeed_later_is_not_repeated(error: HeadraceError) -> None:
    assert not is_transient(error)
    assert not may_repeat(error, is_repeatable=True)

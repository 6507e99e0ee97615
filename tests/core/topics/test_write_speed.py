"""The token bucket of a partition: bursts, debts, time."""

from __future__ import annotations

from headrace.core.limits import WRITE_DEBT_SECONDS_MAX, WRITE_WAIT_SECONDS_MAX
from headrace.core.topics.write_speed import WriteLimit, WriteSpeeds

SECOND = 1_000_000


def test_a_burst_is_free_and_what_exceeds_it_waits_until_it_is_paid_off() -> None:
    speeds, limit = WriteSpeeds(), WriteLimit(100, 300)
    assert speeds.spend({0: 300}, limit, 0) == {}
    assert speeds.spend({0: 50, 1: 10}, limit, 0) == {0: 0.5}
    assert speeds.spend({0: 100}, limit, 0) == {0: 1.5}, "the debt of all who write there"
    assert speeds.spend({0: 50}, limit, SECOND) == {0: 1.0}
    assert speeds.spend({0: 0}, limit, 3 * SECOND) == {}


def test_a_pause_saves_no_more_than_a_burst() -> None:
    speeds, limit = WriteSpeeds(), WriteLimit(100, 300)
    speeds.spend({0: 300}, limit, 0)
    assert speeds.spend({0: 400}, limit, 3600 * SECOND) == {0: 1.0}


def test_the_average_holds_for_messages_larger_than_a_burst() -> None:
    speeds, limit, now, sent = WriteSpeeds(), WriteLimit(1_000, 1_000), 0, 0
    for _ in range(20):
        sent += 2_500
        now += int(speeds.spend({0: 2_500}, limit, now).get(0, 0.0) * SECOND)
    assert sent <= 1_000 + now / SECOND * 1_000 <= sent + 1_000


def test_other_limits_hold_from_the_next_message_on_and_a_clock_set_back_changes_nothing() -> None:
    speeds = WriteSpeeds()
    speeds.spend({0: 1_000}, WriteLimit(100, 1_000), 10 * SECOND)
    assert speeds.spend({0: 100}, WriteLimit(1_000, 1_000), 0) == {0: 0.1}
    assert speeds.spend({0: 0}, WriteLimit(50, 50), 100 * SECOND) == {}
    assert speeds.spend({0: 100}, WriteLimit(50, 50), 100 * SECOND) == {0: 1.0}


def test_a_wait_and_a_debt_are_bounded() -> None:
    speeds, limit = WriteSpeeds(), WriteLimit(100, 300)
    assert speeds.spend({0: 10 << 30, 1: 1_400}, limit, 0) == {0: WRITE_WAIT_SECONDS_MAX, 1: WRITE_WAIT_SECONDS_MAX}
    assert speeds.spend({0: 1, 1: 1}, limit, SECOND) == {0: WRITE_WAIT_SECONDS_MAX, 1: WRITE_WAIT_SECONDS_MAX}
    assert speeds.spend({1: 0}, limit, 2 * SECOND) == {1: 9.01}
    later = int(WRITE_DEBT_SECONDS_MAX - 5) * SECOND
    assert speeds.spend({0: 0}, limit, later) == {0: 5.01}, "more than the most that is owed was forgiven"


def test_the_time_before_a_clock_was_set_back_is_gained_once() -> None:
    speeds, limit = WriteSpeeds(), WriteLimit(100, 100)
    assert speeds.spend({0: 600}, limit, 10 * SECOND) == {0: 5.0}
    assert speeds.spend({0: 0}, limit, 8 * SECOND) == {0: 5.0}
    assert speeds.spend({0: 0}, limit, 11 * SECOND) == {0: 4.0}

"""The payload window: expiry, two hashes, the bound and what it costs, snapshots."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.hashes.columns import fnv1a64_of
from headrace.core.publish.payload_window import (
    NO_PAYLOADS,
    SNAPSHOT_SCHEMA,
    Payloads,
    PayloadWindow,
    payloads_of,
    present_of,
    repeats_within,
)


def payloads(*entries: tuple[int, int, int]) -> Payloads:
    """First hash, second hash and time of some payloads."""
    first, second, time_us = zip(*entries, strict=True) if entries else ((), (), ())
    return Payloads(np.array(first, np.uint64), np.array(second, np.uint64), np.array(time_us, np.int64))


def window_of(*entries: tuple[int, int, int], messages_max: int = 1000) -> PayloadWindow:
    window = PayloadWindow(messages_max)
    window.add(payloads(*entries))
    return window


def contains(window: PayloadWindow, *hashes: tuple[int, int], after_us: int = 0) -> list[bool]:
    found = window.contains(payloads(*((first, second, 0) for first, second in hashes)), after_us)
    assert found.dtype == np.bool_
    return [bool(each) for each in found]


def test_payload_is_hashed_by_its_value_and_carries_its_time() -> None:
    found = payloads_of(pa.array([b"a", b"foobar"]), 42)
    assert found.first.tolist() == [fnv1a64_of(b"a"), fnv1a64_of(b"foobar")]
    assert found.time_us.tolist() == [42, 42]
    assert len(found) == 2
    assert len(payloads_of(pa.array([], pa.binary()), 42)) == len(NO_PAYLOADS) == 0


def test_empty_window_contains_nothing() -> None:
    assert contains(PayloadWindow(), (1, 1), (2, 2)) == [False, False]
    assert len(PayloadWindow()) == 0


def test_payload_is_found_only_if_both_hashes_agree() -> None:
    window = window_of((5, 50, 10), (7, 70, 10))
    assert contains(window, (5, 50), (5, 51), (7, 50), (6, 60), (7, 70), (9, 90)) == [
        True,
        False,
        False,
        False,
        True,
        False,
    ]


def test_colliding_first_hashes_are_all_compared() -> None:
    window = window_of((5, 50, 10), (5, 51, 10), (5, 52, 10), (6, 60, 10))
    window.add(payloads((5, 53, 11)))
    assert contains(window, (5, 50), (5, 51), (5, 52), (5, 53), (5, 54)) == [True, True, True, True, False]


def test_payload_written_at_the_edge_of_the_window_has_expired() -> None:
    window = window_of((5, 50, 10))
    assert contains(window, (5, 50), after_us=9) == [True]
    assert contains(window, (5, 50), after_us=10) == [False]


def test_payload_written_again_after_expiry_is_found_by_its_later_time() -> None:
    window = window_of((5, 50, 10))
    window.add(payloads((5, 50, 20)))
    assert contains(window, (5, 50), after_us=15) == [True]
    assert window.clean(15) == 1
    assert contains(window, (5, 50), after_us=15) == [True]


def test_cleaning_drops_what_was_written_at_or_before_the_edge() -> None:
    window = window_of((1, 1, 10), (2, 2, 11), (3, 3, 12))
    assert window.clean(9) == 0
    assert window.clean(11) == 2
    assert contains(window, (1, 1), (2, 2), (3, 3)) == [False, False, True]
    assert window.clean(100) == 1
    assert len(window) == 0
    assert window.forgotten_early == 0


def test_repeat_is_the_later_row_of_the_same_payload() -> None:
    batch = payloads((5, 50, 0), (7, 70, 0), (5, 50, 0), (5, 51, 0), (7, 70, 0), (5, 50, 0))
    assert repeats_within(batch).tolist() == [False, False, True, False, True, True]
    assert repeats_within(NO_PAYLOADS).tolist() == []


def test_full_window_forgets_the_oldest_and_counts_them() -> None:
    window = PayloadWindow(messages_max=100)
    for number in range(100):
        window.add(payloads((number, number, number)))
    assert (len(window), window.forgotten_early) == (100, 0)
    window.add(payloads((100, 100, 100)))
    # One too many, and a tenth of the bound in advance.
    assert (len(window), window.forgotten_early) == (90, 11)
    assert contains(window, (10, 10), (11, 11), (100, 100), after_us=-1) == [False, True, True]


@pytest.mark.parametrize("messages_max", [1, 5, 64])
def test_bound_holds_after_a_commit_larger_than_the_window(messages_max: int) -> None:
    window = PayloadWindow(messages_max)
    window.add(payloads(*((number, number, number // 10) for number in range(200))))
    assert len(window) == messages_max - messages_max // 10
    assert window.forgotten_early == 200 - len(window)
    assert contains(window, (199, 199), (0, 0), after_us=-1) == [True, False]


def test_runs_are_merged_so_that_lookups_stay_few() -> None:
    window = PayloadWindow()
    for number in range(1000):
        window.add(payloads((number * 7919 % 1000, number, number)))
    assert len(window) == 1000
    assert len(window._runs) <= 11
    for run in window._runs:
        assert np.all(run.first[1:] >= run.first[:-1])


def test_adding_nothing_leaves_no_run() -> None:
    window = PayloadWindow()
    window.add(NO_PAYLOADS)
    assert window._runs == []


def test_copy_is_independent() -> None:
    window = window_of((1, 1, 1), (2, 2, 2), messages_max=2)
    window.add(payloads((3, 3, 3)))
    twin = window.copy()
    twin.add(payloads((4, 4, 4)))
    assert (len(window), window.forgotten_early, window.messages_max) == (2, 1, 2)
    assert (len(twin), twin.forgotten_early, twin.messages_max) == (2, 2, 2)
    assert contains(window, (2, 2), (4, 4)) == [True, False]
    assert contains(twin, (2, 2), (4, 4)) == [False, True]


def test_snapshot_of_an_empty_window_restores_to_an_empty_one() -> None:
    snapshot = PayloadWindow().snapshot()
    assert snapshot.schema.equals(SNAPSHOT_SCHEMA)
    assert len(PayloadWindow.restore(snapshot)) == 0


def test_restoring_into_a_smaller_bound_forgets_the_oldest() -> None:
    snapshot = window_of(*((number, number, number) for number in range(50))).snapshot()
    restored = PayloadWindow.restore(snapshot, messages_max=20)
    assert (len(restored), restored.forgotten_early) == (18, 32)
    assert contains(restored, (49, 49), (31, 31), after_us=-1) == [True, False]


ENTRIES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), max_size=12)


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 3)), max_size=12), st.integers(0, 6))
@settings(deadline=None, max_examples=120)
def test_window_agrees_with_a_plain_list(commits: list[tuple[list[tuple[int, int]], int]], window_us: int) -> None:
    window, model = PayloadWindow(), list[tuple[int, int, int]]()
    now_us = 0
    for hashes, later_us in commits:
        now_us += later_us
        after_us = now_us - window_us
        expected = [
            any((first, second) == (a, b) and time > after_us for a, b, time in model) for first, second in hashes
        ]
        assert contains(window, *hashes, after_us=after_us) == expected
        new = [(first, second, now_us) for first, second in hashes]
        window.add(payloads(*new))
        model += new
        if later_us == 3:
            kept = [entry for entry in model if entry[2] > after_us]
            assert window.clean(after_us) == len(model) - len(kept)
            model = kept
        assert len(window) == len(model)
    restored = PayloadWindow.restore(window.snapshot())
    assert restored.snapshot().equals(window.snapshot())
    rows = sorted(tuple(row.values()) for row in window.snapshot().to_pylist())
    assert rows == sorted(model)


def test_payloads_that_are_dated_in_the_future_count_from_when_that_is_noticed() -> None:
    second = 1_000_000
    window = PayloadWindow()
    window.add(payloads_of(pa.array([b"before"]), 10 * second))
    window.add(payloads_of(pa.array([b"ahead"]), 1_000 * second))
    twin = window.copy()
    window.date_back(100 * second)
    both = payloads_of(pa.array([b"before", b"ahead"]), 0)
    assert window.contains(both, 9 * second).tolist() == [True, True]
    assert window.contains(both, 10 * second).tolist() == [False, True]
    assert window.contains(both, 100 * second).tolist() == [False, False]
    window.date_back(50 * second)
    assert window.contains(both, 50 * second).tolist() == [False, False]
    window.date_back(200 * second)
    assert window.contains(both, 49 * second).tolist() == [False, True], "nothing is dated later than it was"
    assert twin.contains(both, 100 * second).tolist() == [False, True]
    twin.date_back(100 * second)
    assert twin.contains(both, 100 * second).tolist() == [False, False]


@pytest.mark.parametrize(("time_us", "present_us"), [(5, 5), (7, 7), (2_000_005, 2_000_005), (2_000_006, 5)])
def test_the_present_is_broker_time_unless_that_is_ahead_by_more_than_moments(time_us: int, present_us: int) -> None:
    assert present_of(time_us, 5) == present_us

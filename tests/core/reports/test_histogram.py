"""Histograms against a plain count."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.reports.histogram import SECONDS, Histogram


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5))))
def test_cumulative_counts_are_those_at_or_below_each_bound(observed: list[tuple[float, int]]) -> None:
    histogram = Histogram(SECONDS)
    for value, times in observed:
        histogram.observe(value, times)
    values = [value for value, times in observed for _ in range(times)]
    assert histogram.count == len(values)
    assert abs(histogram.sum - sum(values)) < 1e-6
    for bound, count in zip((*histogram.bounds, float("inf")), accumulate(histogram.counts), strict=True):
        assert count == sum(value <= bound for value in values)


def test_sum_of_histograms_counts_the_values_of_both() -> None:
    one, other = Histogram(SECONDS), Histogram(SECONDS)
    one.observe(0.001, 2)
    other.observe(100.0)
    one.add(other)
    assert (one.count, one.sum, one.counts[-1]) == (3, 100.002, 1)
    assert other.count == 1

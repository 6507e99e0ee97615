"""Histograms against a plain count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.histogram import SECONDS, Histogram


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5))))
def test_cumulative_counts_are_those_at_or_below_each_bound(observed: list[tuple[float, int]]) -> None:
    histogram = Histogram(SECONDS)
    for value, times in observed:
        histogram.observe(value, times)
    values = [value for value, times in observed for _ in range(times)]
    assert histogram.count == len(values)
    assert abs(histogram.sum - sum(values)) < 1e-6
    for bound, count in histogram.cumulative():
        assert count == sum(value <= bound for value in values)

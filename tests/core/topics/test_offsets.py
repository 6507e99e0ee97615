"""Offsets of topics that got more partitions."""

from __future__ import annotations

import numpy as np

from headrace.core.topics.offsets import widened


def test_partitions_that_were_added_begin_at_0() -> None:
    assert widened([5, 7], 4).tolist() == [5, 7, 0, 0]
    assert widened([], 2).tolist() == [0, 0]


def test_nothing_is_cut() -> None:
    assert widened([5, 7, 9], 2).tolist() == [5, 7, 9]


def test_the_result_is_a_copy() -> None:
    offsets = np.array([5, 7])
    widened(offsets, 2)[0] = 6
    assert offsets.tolist() == [5, 7]

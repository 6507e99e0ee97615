"""Numbers within bounds: what passes, what is refused, and what the error says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.core.checks import check_index, check_number, check_partitions, check_seconds, check_whole
from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX


def test_whole_numbers_of_python_and_numpy_pass() -> None:
    assert check_whole("offset", 3, 0, 9) == 3
    assert type(check_whole("offset", np.int64(3), 0, 9)) is int
    assert check_index("partition", np.int32(-4)) == -4
    assert check_partitions(PARTITIONS_MAX) == PARTITIONS_MAX


@pytest.mark.parametrize("value", [-1, 10, True, 1.0, "3", None])
def test_other_values_are_refused_with_the_bounds(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"offset is .*: it must be a whole number from 0 to 9"):
        check_whole("offset", value, 0, 9)


@pytest.mark.parametrize("value", [1.5, "0", None, False])
def test_an_index_is_a_whole_number(value: object) -> None:
    with pytest.raises(InvalidInput, match="partition"):
        check_index("partition", value)


def test_numbers_have_bounds() -> None:
    assert check_number("rate", 0.5, 0, 1) == 0.5
    with pytest.raises(InvalidInput, match="it must be a number from 0 to 1"):
        check_number("rate", math.nan, 0, 1)
    with pytest.raises(InvalidInput, match="it must be at least 0"):
        check_seconds("wait_seconds", -1)
    assert check_seconds("wait_seconds", math.inf) == 1e6


@pytest.mark.parametrize("partitions", [0, PARTITIONS_MAX + 1, "1"])
def test_partitions_have_bounds(partitions: object) -> None:
    with pytest.raises(InvalidInput, match="partitions"):
        check_partitions(partitions)

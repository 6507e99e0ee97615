"""Which offsets can be read."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.storage.interface import OffsetRange
from headrace.storage.ranges import check_range

OFFSETS = OffsetRange(np.array([0, 3]), np.array([0, 7]))


@pytest.mark.parametrize(("partition", "offset", "end"), [(0, 0, 0), (1, 3, 7), (1, 7, 7)])
def test_a_valid_offset_gives_the_end(partition: int, offset: int, end: int) -> None:
    assert check_range("t", OFFSETS, partition, offset) == end


@pytest.mark.parametrize(("partition", "offset"), [(0, 1), (0, -1), (1, 2), (1, 8)])
def test_an_offset_outside_is_refused_with_the_range(partition: int, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        check_range("t", OFFSETS, partition, offset)
    assert (caught.value.start, caught.value.end) == ((0, 0) if partition == 0 else (3, 7))


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_outside_is_refused(partition: int) -> None:
    with pytest.raises(PartitionNotFound) as caught:
        check_range("t", OFFSETS, partition, 0)
    assert str(caught.value) == f"partition {partition} of topic 't' does not exist: it has partitions 0 to 1"

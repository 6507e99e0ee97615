"""Which offsets can be read."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.storage.interface import OffsetRange
from headrace.storage.ranges import Gap, check_range, offsets_past

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
    assert str(caught.value) == f"partition {partition} of topic 't' does not exist: the topic has partitions 0 to 1"


GAPPY = offsets_past(np.array([0, 3]), np.array([9, 12]), [Gap(0, 2, 4), Gap(0, 7, 9), Gap(1, 0, 2), Gap(1, 3, 5)])


def test_a_partition_that_begins_with_a_gap_begins_behind_it() -> None:
    assert GAPPY.start.tolist() == [0, 5]
    assert GAPPY.gaps == (Gap(0, 2, 4), Gap(0, 7, 9), Gap(1, 3, 5))
    assert GAPPY.skipped == 6


@pytest.mark.parametrize(("offset", "stop"), [(0, 2), (1, 2), (4, 7), (9, 9)])
def test_reading_stops_before_a_gap(offset: int, stop: int) -> None:
    assert check_range("t", GAPPY, 0, offset) == stop


@pytest.mark.parametrize(("offset", "resume"), [(2, 4), (3, 4), (7, 9), (8, 9)])
def test_an_offset_in_a_gap_is_refused_with_the_next_one(offset: int, resume: int) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        check_range("t", GAPPY, 0, offset)
    assert (caught.value.start, caught.value.end) == (resume, 9)
    assert GAPPY.past_gaps(np.array([offset, 6])).tolist() == [resume, 6]

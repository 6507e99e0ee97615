"""Offsets by partition as arrays. Partitions can be added, so an older array may be shorter than a newer one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.core.hashes.columns import Int64s


def widened(offsets: Sequence[int] | Int64s, partitions: int) -> Int64s:
    """A copy of offsets by partition, with zeros for partitions that were added since."""
    result = np.zeros(max(partitions, len(offsets)), np.int64)
    result[: len(offsets)] = offsets
    return result

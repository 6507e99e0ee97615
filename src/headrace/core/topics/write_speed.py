"""How fast a partition may be written: a token bucket for each partition, with time as an argument.

    seconds = speeds.spend({0: 5_000}, limit, now_us)        by partition, how long its writer is to wait

A bucket holds at most the burst and gains bytes with time. What is written counts in any case, so a bucket may be in
debt: then its writer waits until that is paid off, and so the average holds for messages larger than a burst. A wait is
bounded, and so is a debt: commits that are worth more than the longest wait exceed the limit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.limits import MICROSECONDS, WRITE_DEBT_SECONDS_MAX, WRITE_WAIT_SECONDS_MAX


class WriteLimit(NamedTuple):
    """What each partition of a topic may get: bytes per second, and as many at once."""

    bytes_per_second: int
    burst_bytes: int


class WriteSpeeds:
    """The buckets of one topic. Not thread-safe."""

    def __init__(self) -> None:
        # By partition what was left, and when; a partition that is not here has a full bucket.
        self._left: dict[int, tuple[float, int]] = {}

    def spend(self, written: Mapping[int, int], limit: WriteLimit, now_us: int) -> dict[int, float]:
        """These bytes were written to each partition; the seconds to wait where a bucket is in debt."""
        debt_max, waits = limit.bytes_per_second * WRITE_DEBT_SECONDS_MAX, {}
        for partition, size in written.items():
            left, at_us = self._left.get(partition, (float(limit.burst_bytes), now_us))
            # A clock that was set back gains nothing, and loses nothing; nor is its time gained twice.
            spent_us = max(now_us, at_us)
            gained = (spent_us - at_us) * limit.bytes_per_second / MICROSECONDS
            left = max(-debt_max, min(float(limit.burst_bytes), left + gained) - size)
            self._left[partition] = left, spent_us
            if left < 0:
                waits[partition] = min(WRITE_WAIT_SECONDS_MAX, -left / limit.bytes_per_second)
        return waits

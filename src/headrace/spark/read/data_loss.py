"""Data loss: messages that were deleted before they were read, by retention or by recreating the topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import MessagesLost
from headrace.spark.read.splits import Ranges

_REMEDY: Final = (
    "Start again with a new checkpoint, or set failOnDataLoss=false to skip them; an important group keeps "
    "retention from deleting what it has not read"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Lost offsets by partition: from the first one lost up to the one after the last."""

    ranges: Mapping[int, tuple[int, int]]

    def face(self, topic: str, fails: bool) -> None:
        """Raise an error that names them, or log how many were skipped."""
        if not self.ranges:
            return
        shown = "; ".join(
            f"partition {partition}: {end - start} messages, offsets {start} to {end - 1}"
            for partition, (start, end) in sorted(self.ranges.items())
        )
        if fails:
            raise MessagesLost(topic, shown, _REMEDY)
        total = sum(end - start for start, end in self.ranges.values())
        logger.warning(
            "skipped %d messages of topic %r that were deleted before they were read: %s", total, topic, shown
        )


def kept_of(ranges: Ranges, bounds: Mapping[int, tuple[int, int]]) -> tuple[Ranges, DataLoss]:
    """Split ranges into the part that still exists, and the part that is lost.

    bounds: start and end offset by partition, as they are now.
    """
    kept: Ranges = {}
    lost: dict[int, tuple[int, int]] = {}
    for partition, (start, end) in ranges.items():
        oldest, newest = bounds.get(partition, (0, 0))
        first, last = max(start, oldest), min(end, newest)
        if first >= last:
            lost[partition] = (start, end)
            continue
        kept[partition] = (first, last)
        if first > start or last < end:
            # A topic that ends before the position is a new topic of the same name.
            lost[partition] = (start if first > start else last, end if last < end else first)
    return kept, DataLoss(lost)

"""Data loss: messages that were deleted before they were read, by retention or with their topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import MessagesLost
from headrace.spark.reader.splits import Bounds, PartitionKey, Ranges

_REMEDY: Final = (
    "Start again with a new checkpoint, or set failOnDataLoss=false to skip them; an important group keeps "
    "retention from deleting what it has not read"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Lost offsets by partition: from the first one lost up to the one after the last."""

    ranges: Mapping[PartitionKey, tuple[int, int]]

    def face(self, fails: bool) -> None:
        """Raise an error that names them, or log how many were skipped."""
        if not self.ranges:
            return
        topics = sorted({place.topic for place in self.ranges})
        shown = "; ".join(
            f"{_shown(place, len(topics) > 1)}: {end - start} messages, offsets {start} to {end - 1}"
            for place, (start, end) in sorted(self.ranges.items())
        )
        if fails:
            raise MessagesLost(", ".join(topics), shown, _REMEDY)
        total = sum(end - start for start, end in self.ranges.values())
        logger.warning(
            "skipped %d messages of topic %r that were deleted before they were read: %s",
            total,
            ", ".join(topics),
            shown,
        )


def face_deleted(topic: str, is_recreated: bool, fails: bool) -> None:
    """Raise an error for a topic that was deleted while it was read, or log it: nobody knows what was not read."""
    what = "it was deleted and created again" if is_recreated else "it was deleted"
    if fails:
        raise MessagesLost(topic, f"{what} after the last batch, with the messages that were not read", _REMEDY)
    logger.warning("topic %r: %s; messages that were not read before are skipped", topic, what)


def _shown(place: PartitionKey, with_topic: bool) -> str:
    return f"topic {place.topic!r} partition {place.partition}" if with_topic else f"partition {place.partition}"


def kept_of(ranges: Ranges, bounds: Bounds) -> tuple[Ranges, DataLoss]:
    """Split ranges into the part that still exists, and the part that is lost.

    bounds: start and end offset by partition, as they are now.
    """
    kept: Ranges = {}
    lost: Ranges = {}
    for place, (start, end) in ranges.items():
        oldest, newest = bounds.get(place, (0, 0))
        first, last = max(start, oldest), min(end, newest)
        if first >= last:
            lost[place] = (start, end)
            continue
        kept[place] = (first, last)
        if first > start or last < end:
            # A partition that ends before the position is of a store that was restored.
            lost[place] = (start if first > start else last, end if last < end else first)
    return kept, DataLoss(lost)

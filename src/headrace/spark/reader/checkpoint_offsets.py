"""The positions in a checkpoint of Spark, as `startingOffsets` of another query that goes on from there.

    offsets/N   what batch N reads up to: a line for the format, one about the batch, one for each source
    commits/N   exists when batch N is complete

Only topics are found; sources of other kinds are left out. If several sources read one partition, as the branches of a
pipeline do, the position is the smaller one: the other query reads a message again rather than miss it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.spark.reader import stream_offsets
from headrace.spark.reader.splits import PartitionKey

_FORMAT: Final = "v1"
# Where a pipeline has Spark's own part of its checkpoint.
_OF_PIPELINES: Final = "spark"


@dataclass(frozen=True, slots=True)
class CheckpointOffsets:
    """The next offset of each partition of each topic, after a batch; is_repeated: the batch after it was begun too."""

    batch: int
    is_repeated: bool
    topics: Mapping[str, Mapping[str, int]]


def checkpoint_offsets(path: Path) -> CheckpointOffsets:
    """What a checkpoint says after its last complete batch, or what one of its files in `offsets` says."""
    if path.is_file():
        return CheckpointOffsets(_number(path.name) or 0, False, _topics(path))
    root = path / _OF_PIPELINES if (path / _OF_PIPELINES / "offsets").is_dir() else path
    planned, complete = (_numbers(root / name) for name in ("offsets", "commits"))
    if not planned:
        raise InvalidInput("checkpoint", repr(str(path)), "it must be the checkpoint of a query, with a folder offsets")
    if not complete:
        raise InvalidInput("checkpoint", repr(str(path)), "no batch of it is complete: start where its query did")
    batch = max(complete)
    return CheckpointOffsets(batch, max(planned) > batch, _topics(root / "offsets" / str(batch)))


def _numbers(folder: Path) -> set[int]:
    found = (_number(each.name) for each in folder.iterdir()) if folder.is_dir() else ()
    return {number for number in found if number is not None}


def _number(name: str) -> int | None:
    return int(name) if name.isdecimal() else None


def _topics(file: Path) -> dict[str, dict[str, int]]:
    try:
        first, *lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise InvalidInput("checkpoint", repr(str(file)), f"it cannot be read: {error}") from None
    if first != _FORMAT:
        raise InvalidInput("checkpoint", repr(str(file)), f"it must be a file of offsets of the format {_FORMAT}")
    topics: dict[str, dict[str, int]] = {}
    for place, offset in sorted(_places(lines[1:])):
        offsets, partition = topics.setdefault(place.topic, {}), str(place.partition)
        offsets[partition] = min(offset, offsets.get(partition, offset))
    if not topics:
        raise InvalidInput("checkpoint", repr(str(file)), "none of its sources is a topic")
    return topics


def _places(lines: Iterable[str]) -> list[tuple[PartitionKey, int]]:
    """The offsets of the sources that are topics."""
    found: list[tuple[PartitionKey, int]] = []
    for line in lines:
        try:
            offsets = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            # A source without an offset, or of another kind.
            continue
        if "version" in offsets and ("topics" in offsets or "topic" in offsets):
            found += stream_offsets.decode(offsets).items()
    return found

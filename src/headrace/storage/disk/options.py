"""How a disk store is opened: what its URL may set."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.core.limits import (
    ROOM_BYTES,
    ROOM_BYTES_MAX,
    SEGMENT_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_FRAMES,
    SEGMENT_FRAMES_MAX,
)


class DiskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the disk engine.

    durability: `sync` answers a publish once it is on the device; `os` once the operating system has it, which
        survives a crash of the process, but not of the machine.
    segment_bytes: a segment is complete above this size; retention drops whole segments.
    segment_frames: or above this number of commits, which bounds the time to open a store after a crash.
    room_bytes: how many bytes to preallocate at the end of a segment that gets small commits, so that their syncs are
        quicker; 0 to turn it off. A topic takes this much disk beyond its messages.
    """

    durability: Literal["sync", "os"] = "sync"
    segment_bytes: Annotated[int, msgspec.Meta(ge=1, le=SEGMENT_BYTES_MAX)] = SEGMENT_BYTES
    segment_frames: Annotated[int, msgspec.Meta(ge=1, le=SEGMENT_FRAMES_MAX)] = SEGMENT_FRAMES
    room_bytes: Annotated[int, msgspec.Meta(ge=0, le=ROOM_BYTES_MAX)] = ROOM_BYTES

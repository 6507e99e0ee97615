"""How a disk store is opened: what its URL may set."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.core.limits import SEGMENT_BYTES, SEGMENT_FRAMES


class DiskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the disk engine.

    durability: `sync` answers a publish once it is on the device; `os` once the operating system has it, which
        survives the death of the process and not that of the machine.
    segment_bytes: a segment is complete above this size; retention drops whole segments.
    segment_frames: or above so many commits; this bounds the time to open a store after a crash.
    """

    durability: Literal["sync", "os"] = "sync"
    segment_bytes: int = SEGMENT_BYTES
    segment_frames: int = SEGMENT_FRAMES

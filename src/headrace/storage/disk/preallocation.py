"""Room at the end of the newest segment: zeros that are on the device before they are needed.

A sync after a write that makes a file longer has to bring the file's new length and place to the device too. One
after a write over zeros that are there already brings only the bytes, in about half the time. So a segment that
small commits have filled for a while gets room ahead of them, a little at first. Large commits gain nothing and get
none. Where there are syncs to be saved there is room; a store that does not sync has none.

A process that dies leaves its room behind: zeros up to the end of the newest segment are no torn tail and no damage,
and opening cuts them off. A complete segment has none: it is cut, durably, before the next one begins.

Room that cannot be had is done without: no commit fails for it. One thread writes, the one that commits.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions

# A commit counts as small, and a segment as begun, up to this part of the room.
_SMALL_PART: Final = 16


class Preallocation:
    """The zeros behind the last frame of the newest segment; none to begin with."""

    def __init__(self, files: FileSystem, options: DiskOptions) -> None:
        self._files = files
        self._bytes = options.room_bytes if options.durability == "sync" else 0
        self._small = self._bytes // _SMALL_PART
        self._segment_bytes = options.segment_bytes
        self.forget()

    def extend(self, handle: int, end: int, commit_bytes: int) -> None:
        """Make room behind `end`, where a commit of so many bytes ended that found no more of it: at `due` or later."""
        ahead = min(self._bytes, end, self._segment_bytes - end)
        if ahead > 0 and commit_bytes <= self._small:
            # If this fails it is tried again once so much more was written.
            self._end = end + ahead
            self.due = self._end + 1
            try:
                self._files.write(handle, end, [bytes(ahead)])
            except OSError:
                with suppress(OSError):
                    self._files.truncate(handle, end)

    def cut(self, handle: int, end: int) -> None:
        """Give back what is left, durably."""
        if self._end > end:
            self._files.truncate(handle, end)
            self._files.sync(handle)
        self.forget()

    def forget(self) -> None:
        """There is none: the file was cut, or is another."""
        self._end = 0
        # A commit that ends before this needs no room yet, or has some.
        self.due = self._small if self._bytes else sys.maxsize

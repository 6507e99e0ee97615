"""Preallocation at the end of the newest segment: zeros that are on the device before the space is needed.

A sync after a write that extends a file must also write the file's metadata. A sync after overwriting zeros writes only
the data, in about half the time. So a segment that gets small commits is extended ahead of them, a little at first.
Large commits gain nothing and get no preallocation, and neither does a store that does not sync.

A process that dies leaves the zeros behind: up to the end of the newest segment they are neither a torn tail nor
damage, and recovery truncates them. A complete segment has none: it is truncated, durably, before the next one starts.

If preallocation fails, the log works without it: no commit fails because of it. Only the committing thread writes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions

# A commit counts as small, and a segment as started, up to this part of the preallocation.
_SMALL_PART: Final = 16


class Preallocation:
    """The zeros after the last frame of the newest segment; initially none."""

    def __init__(self, files: FileSystem, options: DiskOptions) -> None:
        self._files = files
        self._bytes = options.room_bytes if options.durability == "sync" else 0
        self._small = self._bytes // _SMALL_PART
        self._segment_bytes = options.segment_bytes
        self.forget()

    def extend(self, handle: int, end: int, commit_bytes: int) -> None:
        """Preallocate after `end`, where a commit of this size ended beyond the preallocation: at `due` or later."""
        ahead = min(self._bytes, end, self._segment_bytes - end)
        if ahead > 0 and commit_bytes <= self._small:
            # If this fails, it is retried after as many bytes were written again.
            self._end = end + ahead
            self.due = self._end + 1
            try:
                self._files.write(handle, end, [bytes(ahead)])
            except OSError:
                with suppress(OSError):
                    self._files.truncate(handle, end)

    def cut(self, handle: int, end: int) -> None:
        """Truncate what is left, durably."""
        if self._end > end:
            self._files.truncate(handle, end)
            self._files.sync(handle)
        self.forget()

    def forget(self) -> None:
        """Reset: the file was truncated, or is a new one."""
        self._end = 0
        # A commit that ends before this needs no preallocation yet, or has enough.
        self.due = self._small if self._bytes else sys.maxsize

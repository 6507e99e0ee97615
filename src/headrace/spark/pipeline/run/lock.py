"""A file lock: only one run at a time.

The kernel releases it when the process ends, for whatever reason. The file is not deleted, because another process may
have just opened it. Two locks of one file exclude each other within a process too.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headrace.core.errors import StoreUnavailable


def unusable(error: OSError) -> str:
    """Why a directory cannot be used, as the rule that its name breaks."""
    return f"it cannot be used ({error.strerror}): choose a directory that this user may write to"


class Lock:
    """The lock of a file, once taken."""

    def __init__(self, file: Path, store: Path, reason: str) -> None:
        """Whose file it is, and what is told if another run has the lock."""
        self._file = file
        self._store = store
        self._reason = reason
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or fail at once; a retry helps once the other run has ended."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise StoreUnavailable(str(self._store), self._reason) from None
        except OSError:
            os.close(handle)
            raise
        self._handle = handle

    def release(self) -> None:
        """Release the lock, if it was taken."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

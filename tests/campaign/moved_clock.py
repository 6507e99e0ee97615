"""`python -m tests.campaign.moved_clock FILE COMMAND...`: the headrace command with a wall clock that can be moved.

The file has the offset in seconds, and is looked at every half second. Only the wall clock moves; the monotonic one
goes on, as when an administrator or NTP sets the time. libfaketime would do it from outside, but its 0.9.10 makes
`time.sleep` of Python 3.11 fail with EINVAL, so that a campaign would test the library instead of the server.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.5
_NANOSECONDS: Final = 1_000_000_000


class MovedClock:
    """The wall clock plus an offset that a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._time, self._time_ns = time.time, time.time_ns
        self._offset_seconds = int(file.read_text())

    def install(self) -> None:
        """Move the clock of this process from now on."""
        time.time = lambda: self._time() + self._offset_seconds
        time.time_ns = lambda: self._time_ns() + self._offset_seconds * _NANOSECONDS
        threading.Thread(target=self._follow, name="moved-clock", daemon=True).start()

    def _follow(self) -> None:
        pause = threading.Event()
        while not pause.wait(_LOOK_SECONDS):
            self._offset_seconds = int(self._file.read_text())


if __name__ == "__main__":
    MovedClock(Path(sys.argv.pop(1))).install()
    # Imported once the clock is moved, so that nobody holds the one before.
    from headrace.cli import main
    from tests.tuned import tuned

    sys.exit(main.run(tuned(sys.argv[1:])))

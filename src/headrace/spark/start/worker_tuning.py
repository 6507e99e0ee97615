"""The Python worker of a task, a process that serves many tasks.

Spark collects garbage after every task. All that was imported by then is looked at each time, hundreds of thousands of
objects that stay for as long as the process: that was a quarter of the time of a worker that reads. So they are put
where the collector does not look.

Batches of megabytes come and go. Memory that was freed is kept for the next one: to give it back and to get it again,
page by page, was more than half of what the system did for such a worker.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Final

# As malloc.h of the GNU C library names and numbers them, with what is kept and from what size on it is not.
_M_TRIM_THRESHOLD: Final = -1, 128 << 20
_M_MMAP_THRESHOLD: Final = -3, 32 << 20
# Threads share what is kept, so that it is not as much for each of them.
_M_ARENA_MAX: Final = -8, 2


@functools.cache
def settle() -> None:
    """Make this process quick at many tasks; called at the beginning of each, it does something in the first."""
    gc.collect()
    gc.freeze()
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX):
            set_option(*option)

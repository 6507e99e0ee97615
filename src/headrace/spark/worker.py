"""The Python worker of a task, a process that serves many tasks.

Spark collects garbage after every task. All that was imported by then is looked at each time, some hundred thousand
objects that stay for as long as the process, which costs more than to read a hundred thousand messages. So they are
put where the collector does not look.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle() -> None:
    """Make this process quick at many tasks; called at the beginning of each, it does something in the first."""
    gc.collect()
    gc.freeze()

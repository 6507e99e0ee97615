"""Ending by a signal without leaving anything behind: SIGTERM and Ctrl-C interrupt a load, but not in the middle of
starting a process, which would be leaked, and not a second time during cleanup.

Signals belong to the whole process, and so does this state. Handlers run in the main thread.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class _State:
    undisturbed = 0
    is_pending = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` once in the block when a signal arrives."""
    _State.is_pending = False
    before = {number: signal.signal(number, _take) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer signals within the block until its end."""
    _State.undisturbed += 1
    try:
        yield
    finally:
        _State.undisturbed -= 1
        if _State.is_pending and not _State.undisturbed:
            _interrupt()


def _take(number: int, frame: object) -> None:
    if _State.undisturbed:
        _State.is_pending = True
    else:
        _interrupt()


def _interrupt() -> None:
    _State.is_pending = False
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt

"""Memory that the allocator keeps: each thread that made a large answer has a heap, which does not shrink by itself."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

# What a budget must have given back before it is worth it.
TRIM_BYTES: Final = 32 << 20


class Peak:
    """The most bytes that were held since the allocator was last asked to give memory back."""

    def __init__(self) -> None:
        self._most = 0

    def see(self, held: int) -> None:
        """So much is held now."""
        if held > self._most:
            self._most = held

    def is_over(self, held: int, size: int = TRIM_BYTES) -> bool:
        """Whether this much was held at once and nearly all of it is gone; then that counts no more."""
        if self._most < size or held > self._most // 8:
            return False
        self._most = held
        return True


def trim() -> None:
    """Give free memory back to the system, as far as Arrow and the C library can."""
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)

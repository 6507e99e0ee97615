"""Memory that the allocator keeps: each thread that made a large answer has a heap, which does not shrink by itself."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

# What a budget must have given back before it is worth it.
TRIM_BYTES: Final = 32 << 20


def trim() -> None:
    """Give free memory back to the system, as far as Arrow and the C library can."""
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)

"""Fork protection: a forked process has no threads of its parent, and gRPC does not work in it.

Producers, consumers and connections belong to the process that created them; in another one they would wait forever for
a thread that does not exist. So each remembers its `generation`, the number of forks that led to its process, and
raises `Forked` at once in another. `use_grpc` is called before a connection is opened: gRPC that was used before a fork
cannot be used after it at all.

Objects that are `kept` are never freed in a forked process: gRPC waits for its threads when a connection is freed, also
at exit. Thread-safe.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from headrace.core.errors import Forked

generation = 0
_grpc_generation: int | None = None
_kept: weakref.WeakSet[Any] = weakref.WeakSet()


def _count() -> None:
    global generation
    generation += 1
    for each in _kept:
        # References that are never released.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _kept.clear()


os.register_at_fork(after_in_child=_count)


def keep(connection: Any) -> None:
    """Never free this in a process that is forked from here on."""
    _kept.add(connection)


def check(born: int, what: str) -> None:
    """Raise `Forked` for objects that were created before a fork."""
    if born != generation:
        raise Forked(what)


def use_grpc() -> None:
    """Record that gRPC is used; raises if it was used before a fork."""
    global _grpc_generation
    if _grpc_generation is None:
        _grpc_generation = generation
    check(_grpc_generation, "gRPC")

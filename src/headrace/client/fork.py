"""Forks: a process that was forked from another one has none of its threads, and gRPC does not work in it.

Producers, consumers and connections stay with the process that made them; used in another one they would wait for ever
for a thread that is not there. So each remembers its `generation`, the number of forks that led to its process, and
raises `Forked` at once in another. `use_grpc` is asked before a connection is made: gRPC that was used before a fork
cannot be used behind it at all, by nobody.

What is `kept` is never freed in a process that was forked: gRPC waits for its threads when a connection is freed, also
at the end of the process. Safe for threads.
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
        # A reference that nobody ever gives back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _kept.clear()


os.register_at_fork(after_in_child=_count)


def keep(connection: Any) -> None:
    """Never free this in a process that is forked from here on."""
    _kept.add(connection)


def check(born: int, what: str) -> None:
    """Refuse what was made before a fork."""
    if born != generation:
        raise Forked(what)


def use_grpc() -> None:
    """gRPC is used from now on; refused if it was used before a fork."""
    global _grpc_generation
    if _grpc_generation is None:
        _grpc_generation = generation
    check(_grpc_generation, "gRPC")

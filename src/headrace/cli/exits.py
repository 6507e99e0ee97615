"""What the exit code of a command means, and the one error that commands raise to end with it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; docs/OPERATIONS.md explains them to those who write scripts."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    FAILING = 5
    NOTHING_NEW = 6
    INTERRUPTED = 130


class Enough(Exception):
    """Whoever read our output has enough of it: an end like any other."""


class Failure(Exception):
    """A command cannot go on: one line for people, and the exit code for programs."""

    def __init__(self, exit: Exit, line: str) -> None:
        super().__init__(line)
        self.exit = exit

"""Exit codes: what each one means, which error leads to which code, and `Failure`, which commands raise."""

from __future__ import annotations

from enum import IntEnum

from headrace.core.errors import AccessDenied, Closed, HeadraceError, ServerFailed, StorageError, Unreachable, Untrusted


class Exit(IntEnum):
    """Exit codes of commands; docs/operations.md explains them for scripts."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    FAILING = 5
    NOTHING_NEW = 6
    INTERRUPTED = 130


class Enough(Exception):
    """The reader of our output closed the pipe, as `head` does: the command ends normally."""


class Failure(Exception):
    """A command cannot continue: one line for people and an exit code for programs."""

    def __init__(self, exit: Exit, line: str) -> None:
        super().__init__(line)
        self.exit = exit


def exit_of(kind: type[HeadraceError]) -> Exit:
    """The exit code of an error."""
    if issubclass(kind, AccessDenied):
        return Exit.DENIED
    if issubclass(kind, Unreachable | Untrusted):
        return Exit.UNREACHABLE
    is_of_server = kind.retry or issubclass(kind, Closed | ServerFailed | StorageError)
    return Exit.FAILING if is_of_server else Exit.REFUSED

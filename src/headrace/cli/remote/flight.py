"""Talking to a server over Arrow Flight, for commands that are faster that way; failures end as those of HTTP do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.cli.exits import Exit, Failure
from headrace.client import Client, connect
from headrace.core.errors import (
    AccessDenied,
    Closed,
    HeadraceError,
    InvalidInput,
    Overloaded,
    ServerFailed,
    StorageError,
    Unreachable,
)


@contextmanager
def connected(url: str, token: str | None, ca: Path | None, patience_seconds: float) -> Iterator[Client]:
    """A client of the server at a URL; what it raises ends the command."""
    try:
        client = connect(url, token, root_certificates=ca, timeout_seconds=patience_seconds)
    except InvalidInput as error:
        raise Failure(Exit.USAGE, f"--{error}") from None
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot use --ca {ca}: {error}") from None
    with client:
        try:
            yield client
        except HeadraceError as error:
            raise Failure(exit_of(error), str(error)) from None


def exit_of(error: HeadraceError) -> Exit:
    """How a command ends by an error of the client."""
    if isinstance(error, AccessDenied):
        return Exit.DENIED
    if isinstance(error, Unreachable):
        return Exit.UNREACHABLE
    is_of_the_server = error.retry or isinstance(error, Closed | Overloaded | ServerFailed | StorageError)
    return Exit.FAILING if is_of_the_server else Exit.REFUSED

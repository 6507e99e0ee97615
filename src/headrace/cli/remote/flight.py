"""The Arrow Flight client of commands that move many messages; failures end a command as they do over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.cli.exits import Exit, Failure, exit_of
from headrace.client import Client, connect
from headrace.core.errors import HeadraceError, InvalidInput


@contextmanager
def connected(url: str, token: str | None, ca: Path | None, patience_seconds: float) -> Iterator[Client]:
    """A client for the server at a URL; errors it raises end the command."""
    try:
        client = connect(url, token, root_certificates=ca, timeout_seconds=patience_seconds)
    except InvalidInput as error:
        raise Failure(Exit.USAGE, f"--{error}") from None
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot use --ca or the client certificate: {error}") from None
    with client:
        try:
            yield client
        except HeadraceError as error:
            raise Failure(exit_of(type(error)), str(error)) from None

"""The server that `bench` and `verify` put under load: one that is named, or one of their own on a temporary store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import Ca, Token, option_of
from headrace.core.errors import HeadraceError, InvalidInput


@dataclass(frozen=True, slots=True)
class Target:
    """A server to test: how a client connects to it."""

    url: str
    token: str | None
    root_certificates: str | None


@dataclass(frozen=True, slots=True)
class TestedServer:
    """The options that name the server. HEADRACE_URL does not count: nobody should put load on a server by accident."""

    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the server, headrace://HOST:PORT; separate several by commas. By default the command "
            "starts its own.",
            metavar="URL",
            rich_help_panel="Server",
        ),
    ] = None
    token: Token = None
    ca: Ca = None

    @contextmanager
    def running(self, check: Callable[[], None], directory: Path | None = None) -> Iterator[Target]:
        """The server for the time of a load, which is checked before; failures end the command."""
        from headrace.cli.remote.connection import failure_of
        from headrace.client.addresses import parse_addresses
        from headrace.load.interrupts import interruptible
        from headrace.load.load import LoadFailed
        from headrace.load.server import serving, temporary_store

        try:
            check()
            with interruptible():
                if self.url is not None:
                    parse_addresses(self.url)
                    ca = str(self.ca) if self.ca is not None else os.environ.get("HEADRACE_CA") or None
                    yield Target(self.url, self.token, ca)
                else:
                    with temporary_store(directory) as store, serving(store) as server:
                        # HEADRACE_TOKEN belongs to another server.
                        yield Target(server.url, "", None)
        except InvalidInput as error:
            name = option_of(error.field) or error.field
            raise Failure(Exit.USAGE, f"{name} is {error.value}: {error.rule}") from None
        except LoadFailed as error:
            raise Failure(Exit.FAILING, str(error)) from None
        except HeadraceError as error:
            raise failure_of(error) from None
        except OSError as error:
            raise Failure(Exit.USAGE, f"{error.filename or directory}: {error.strerror}") from None

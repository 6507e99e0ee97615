"""The connection of a command to its server: one client for every command, and its failures as lines for people.

ServerAddress.of(--url, --token, --ca)   flags, environment, profile, default
    └── probe                             is anything listening? A dead server is reported within 3 seconds
          └── connect                     the Python client, over Arrow Flight
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.cli.exits import Exit, Failure, exit_of
from headrace.cli.remote.address import ServerAddress, is_http, unreachable
from headrace.client.addresses import PORT_DEFAULT, parse_addresses
from headrace.client.client import Client
from headrace.client.connection import connect
from headrace.core.errors import GroupNotFound, HeadraceError, InvalidInput, TopicNotFound, Unreachable

if TYPE_CHECKING:
    from ssl import SSLContext

_TLS: Final = "headrace+tls"
# The kernel of a machine that is up answers at once, however busy its server is.
PROBE_SECONDS: Final = 2.5
CALL_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.2


@contextmanager
def connected(
    url: str | None,
    token: str | None,
    ca: Path | None,
    timeout_seconds: float = CALL_SECONDS,
    wait_seconds: float = 0.0,
) -> Iterator[Client]:
    """A client of the server that the options, the environment or a profile name; its errors end the command.

    `timeout_seconds` is how long calls are retried that a server did not answer, `wait_seconds` how long a server is
    waited for that does not answer at first.
    """
    address = ServerAddress.of(url, token, ca)
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            client = _client(address, timeout_seconds)
            break
        except Failure as failure:
            if failure.exit is not Exit.UNREACHABLE or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
    with failures(), client:
        try:
            yield client
        except TopicNotFound as error:
            similar = _similar(error.topic, client.list_topics)
            raise Failure(exit_of(type(error)), f"{error}{similar}") from None
        except GroupNotFound as error:
            topic = error.topic
            similar = _similar(error.group, lambda: client.list_groups(topic))
            raise Failure(exit_of(type(error)), f"{error}{similar}") from None


def _similar(name: str, existing: Callable[[], list[str]]) -> str:
    """The question whether another one was meant, if one has nearly this name."""
    from difflib import get_close_matches

    with suppress(HeadraceError):
        names = {each.casefold(): each for each in existing()}
        for found in get_close_matches(name.casefold(), names, n=1):
            return f"; did you mean {names[found]!r}?"
    return ""


@contextmanager
def failures() -> Iterator[None]:
    """End the command on an error of Headrace, in the words of what the user typed."""
    try:
        yield
    except HeadraceError as error:
        raise failure_of(error) from None


def failure_of(error: HeadraceError) -> Failure:
    """The end of a command that an error means."""
    return Failure(exit_of(type(error)), line_of(error))


def line_of(error: HeadraceError) -> str:
    """An error in one line: a field that is an option of the command is called as the user typed it."""
    if type(error) is InvalidInput:
        from headrace.cli.options.shared import option_of

        return f"{option_of(error.field) or error.field} is {error.value}: {error.rule}"
    if type(error) is Unreachable:
        return unreachable(error.address, error.reason)
    return str(error)


def _client(address: ServerAddress, timeout_seconds: float) -> Client:
    url, ca = address.url, address.ca
    if is_http(url):
        from headrace.cli.remote.http_address import flight_url

        url = flight_url(url, ca, PROBE_SECONDS)
    try:
        addresses = parse_addresses(url, address.field)
    except InvalidInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    # Before gRPC begins: what it logs about a connection that fails is said in one line by the command itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _probe(url, [each.url for each in addresses], ca)
    # An empty token stands for none: `connect` would take that of the environment, which may be for another server.
    token, name = address.token or "", running_command()
    return connect(url, token, root_certificates=ca, timeout_seconds=timeout_seconds, client_id=name)


def running_command() -> str | None:
    """The command that runs, as operators see it in the list of clients: `headrace topic list`."""
    from typer._click.globals import get_current_context

    context = get_current_context(silent=True)
    return None if context is None else " ".join(["headrace", *context.command_path.split()[1:]])


def _probe(url: str, servers: list[str], ca: Path | None) -> None:
    """Check that one of the servers listens, and is trusted: gRPC would try for long, and say little."""
    deadline = time.monotonic() + PROBE_SECONDS
    context = _context(servers, ca)
    reasons: list[str] = []
    for place, each in enumerate(servers):
        parts = urlsplit(each)
        share = max(0.1, (deadline - time.monotonic()) / (len(servers) - place))
        try:
            with socket.create_connection((parts.hostname, parts.port or PORT_DEFAULT), share) as probe:
                if context is not None and parts.scheme == _TLS:
                    context.wrap_socket(probe, server_hostname=parts.hostname).close()
            return
        except (OSError, UnicodeError) as error:
            reasons.append(str(getattr(error, "strerror", None) or error or "no answer"))
    raise Failure(Exit.UNREACHABLE, unreachable(url, "; ".join(dict.fromkeys(reasons))))


def _context(servers: list[str], ca: Path | None) -> SSLContext | None:
    """How to speak TLS, if anybody does; importing it takes long."""
    if ca is None and not any(each.startswith(f"{_TLS}:") for each in servers):
        return None
    from headrace.cli.remote.tls import tls_context

    context = tls_context(ca)
    context.set_alpn_protocols(["h2"])
    return context

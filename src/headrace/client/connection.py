"""`connect`: from a URL to a client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from headrace.client.addresses import parse_addresses
from headrace.client.client import Client
from headrace.client.transport.flight import FlightTransport

TOKEN_VARIABLE: Final = "HEADRACE_TOKEN"


def connect(
    url: str | Sequence[str],
    token: str | None = None,
    *,
    root_certificates: bytes | str | os.PathLike[str] | None = None,
    timeout_seconds: float = 30.0,
) -> Client:
    """A client of the server at `headrace://HOST:PORT` or `headrace+tls://HOST:PORT`.

    Separate several servers of one shared store by commas, or give a list: they are tried in turn, and when one fails
    or stops, the client continues with the next. The connection is opened at the first use and again whenever it
    breaks. If `token` is omitted, `HEADRACE_TOKEN` is used when set.

    root_certificates: trusted CAs for TLS: PEM as bytes, or a PEM file; default: those of the system.
    timeout_seconds: how long to retry a server that does not answer.

    >>> client = connect("headrace://127.0.0.1:7071,127.0.0.1:7081")
    >>> client.close()
    """
    if isinstance(root_certificates, str | os.PathLike):
        with open(root_certificates, "rb") as file:
            root_certificates = file.read()
    given = token if token is not None else os.environ.get(TOKEN_VARIABLE)
    return Client(FlightTransport(parse_addresses(url), given, root_certificates), timeout_seconds)

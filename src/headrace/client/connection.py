"""Connecting: from a URL to a client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from headrace.client.addresses import PORT_DEFAULT, parse_addresses
from headrace.client.client import Client
from headrace.client.transport.flight import FlightTransport

URL_VARIABLE: Final = "HEADRACE_URL"
TOKEN_VARIABLE: Final = "HEADRACE_TOKEN"
# Where `headrace serve` listens unless it is told otherwise.
URL_DEFAULT: Final = f"headrace://127.0.0.1:{PORT_DEFAULT}"


def connect(
    url: str | Sequence[str] | None = None,
    token: str | None = None,
    *,
    root_certificates: bytes | str | os.PathLike[str] | None = None,
    timeout_seconds: float = 30.0,
) -> Client:
    """A client of the server at `headrace://HOST:PORT` or `headrace+tls://HOST:PORT`.

    Several servers of one shared store are given with commas between, or as a list: they are tried in turn, and when
    one dies or stops the client goes on with the next. The connection is made at the first use and again whenever it
    breaks. Without a URL that of the environment variable HEADRACE_URL is used, else the server of this machine;
    without a token that of HEADRACE_TOKEN is sent, if there is one.

    root_certificates: whom to trust with TLS: PEM as bytes, or a file of it; without it, whom the system trusts.
    timeout_seconds: how long a server that does not answer is tried.

    >>> client = connect("headrace://127.0.0.1:7071,127.0.0.1:7081")
    >>> client.close()
    """
    if isinstance(root_certificates, str | os.PathLike):
        with open(root_certificates, "rb") as file:
            root_certificates = file.read()
    named = os.environ.get(URL_VARIABLE)
    if url is not None:
        addresses = parse_addresses(url)
    else:
        addresses = parse_addresses(named, URL_VARIABLE) if named else parse_addresses(URL_DEFAULT)
    given = token if token is not None else os.environ.get(TOKEN_VARIABLE)
    return Client(FlightTransport(addresses, given, root_certificates), timeout_seconds)

"""`connect`: from a URL to a client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.client.addresses import PORT_DEFAULT, parse_addresses
from headrace.client.client import Client
from headrace.client.transport.flight import FlightTransport
from headrace.core.errors import InvalidInput

URL_VARIABLE: Final = "HEADRACE_URL"
TOKEN_VARIABLE: Final = "HEADRACE_TOKEN"
CERTIFICATE_VARIABLE: Final = "HEADRACE_CLIENT_CERTIFICATE"
KEY_VARIABLE: Final = "HEADRACE_CLIENT_KEY"

Pem = bytes | str | os.PathLike[str]
# Where `headrace serve` listens by default.
URL_DEFAULT: Final = f"headrace://127.0.0.1:{PORT_DEFAULT}"


def connect(
    url: str | Sequence[str] | None = None,
    token: str | None = None,
    *,
    root_certificates: Pem | None = None,
    client_certificate: Pem | None = None,
    client_key: Pem | None = None,
    timeout_seconds: float = 30.0,
    client_id: str | None = None,
) -> Client:
    """A client of the server at `headrace://HOST:PORT` or `headrace+tls://HOST:PORT`.

    The servers of a shared store are separated by commas, or given as a list. They are tried in turn, and if one stops,
    the client continues with the next. It connects at the first use, and again whenever the connection breaks. If `url`
    is omitted, `HEADRACE_URL` is used when set, otherwise the server of this machine. If `token` is omitted,
    `HEADRACE_TOKEN` is used when set.

    root_certificates: the CAs to trust with TLS, as PEM bytes or a PEM file; by default those of the system.
    client_certificate, client_key: the identity of the client, for a server that asks for certificates: PEM bytes or
    PEM files, the certificate with its chain, the key without a password. If both are omitted, the files that
    `HEADRACE_CLIENT_CERTIFICATE` and `HEADRACE_CLIENT_KEY` name are used when set.
    timeout_seconds: how long a server that does not answer is retried.
    client_id: what operators see this client as, beside its host and process; by default the name of the program.

    >>> client = connect("headrace://127.0.0.1:7071,127.0.0.1:7081")
    >>> client.close()
    """
    roots = None if root_certificates is None else _pem(root_certificates)
    pair = _client_pair(client_certificate, client_key)
    named = os.environ.get(URL_VARIABLE)
    if url is not None:
        addresses = parse_addresses(url)
    else:
        addresses = parse_addresses(named, URL_VARIABLE) if named else parse_addresses(URL_DEFAULT)
    given = token if token is not None else os.environ.get(TOKEN_VARIABLE)
    return Client(FlightTransport(addresses, given, roots, pair, client_id), timeout_seconds)


def _client_pair(certificate: Pem | None, key: Pem | None) -> tuple[bytes, bytes] | None:
    """Certificate and key, from the environment if neither is given."""
    if certificate is None and key is None:
        certificate, key = os.environ.get(CERTIFICATE_VARIABLE) or None, os.environ.get(KEY_VARIABLE) or None
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given = "only the key" if certificate is None else "only the certificate"
        raise InvalidInput("client_certificate", given, "give both client_certificate and client_key, or neither")
    return _pem(certificate), _pem(key)


def _pem(given: Pem) -> bytes:
    """PEM, from a file unless it is the thing itself."""
    return given if isinstance(given, bytes) else Path(given).read_bytes()

"""An HTTP address where a command expects `headrace://HOST:PORT`: the server is asked where its Flight port is.

Commands called servers over HTTP up to version 0.1, so scripts have such addresses. They are accepted for one release.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headrace.cli.exits import Exit, Failure
from headrace.cli.remote.address import unreachable
from headrace.cli.remote.tls import tls_context

_SCHEMES: Final = {"http": "headrace", "https": "headrace+tls"}


def flight_url(url: str, ca: Path | None, timeout_seconds: float) -> str:
    """The URL of the Flight port of the server at an HTTP address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isprintable():
        raise Failure(Exit.USAGE, f"--url is {url!r}: write it as headrace://HOST:PORT")
    connection: HTTPConnection
    if parts.scheme == "https":
        connection = HTTPSConnection(host, port, timeout=timeout_seconds, context=tls_context(ca))
    else:
        connection = HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/health/live")
        answer = json.loads(connection.getresponse().read(1 << 16))
        flight_port = answer["flight_port"]
    except (OSError, HTTPException) as error:
        raise Failure(Exit.UNREACHABLE, unreachable(url, str(error) or type(error).__name__)) from None
    except (ValueError, KeyError, TypeError):
        line = f"{url} did not answer like a Headrace server of this version: give --url as headrace://HOST:PORT"
        raise Failure(Exit.FAILING, line) from None
    finally:
        connection.close()
    if flight_port is None:
        raise Failure(Exit.REFUSED, f"the server at {url} does not serve Flight, which commands use: see its --flight")
    shown = f"[{host}]" if ":" in host else host
    return f"{_SCHEMES[parts.scheme]}://{shown}:{flight_port}"

"""What a client of this library says of itself with every call: its id, host, process, library and version."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from headrace.core.reports.clients import ClientIdentity, shortened

LIBRARY: Final = "headrace"


def own_identity(client_id: str | None = None) -> bytes:
    """The identity of this process in ASCII, as headers want it; without an id the name of the program."""
    name = client_id or os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    texts = (text.encode("ascii", "backslashreplace").decode() for text in (name, socket.gethostname()))
    client, host = texts
    return msgspec.json.encode(shortened(ClientIdentity(client, host, os.getpid(), LIBRARY, _own_version())))


@cache
def _own_version() -> str:
    """The version of this library; empty where it was not installed but copied, as Spark does with `--py-files`."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return ""

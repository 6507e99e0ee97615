"""Where a server or a console listens: HOST:PORT."""

from __future__ import annotations

from typing import Final

from headrace.cli.exits import Exit, Failure

_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def parse_address(text: str, setting: str = "http") -> tuple[str, int]:
    """Parse HOST:PORT; an IPv6 address is in brackets."""
    host, separator, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host != bare
    if not separator or not bare or (":" in bare) != is_bracketed or not port.isdecimal() or int(port) > 65535:
        raise Failure(Exit.USAGE, f"{setting} is {text!r}: write it as HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070")
    return bare, int(port)


def is_wildcard(host: str | None) -> bool:
    """Whether a host stands for all addresses of the machine: one can listen on it, and not connect to it."""
    return host in _LOOPBACK_OF


def connectable(host: str) -> str:
    """A host to connect to from the same machine, for one that a server listens on."""
    return _LOOPBACK_OF.get(host, host)


def url_of(scheme: str, host: str, port: int) -> str:
    """A URL; an IPv6 address gets brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

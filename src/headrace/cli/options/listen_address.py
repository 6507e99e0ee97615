"""Where a server or a console listens: HOST:PORT."""

from __future__ import annotations

from headrace.cli.exits import Exit, Failure


def parse_address(text: str, setting: str = "http") -> tuple[str, int]:
    """Parse HOST:PORT; an IPv6 address is in brackets."""
    host, separator, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host != bare
    if not separator or not bare or (":" in bare) != is_bracketed or not port.isdecimal() or int(port) > 65535:
        raise Failure(Exit.USAGE, f"{setting} is {text!r}: write it as HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070")
    return bare, int(port)

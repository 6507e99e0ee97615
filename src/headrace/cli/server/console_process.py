"""A console beside a server: `headrace console` as a child process, started before the server is ready, ended with it.

It is a process of its own so that a browser never slows the broker down. It ends by itself when the server dies.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from headrace.broker.access import Access
from headrace.cli.exits import Exit, Failure
from headrace.cli.options.listen_address import connectable, parse_address, url_of
from headrace.cli.server.settings import ServeSettings
from headrace.core.rights import Right

_END_SECONDS: Final = 10.0


@contextmanager
def console_beside(settings: ServeSettings, flight_url: str | None, access: Access) -> Iterator[str | None]:
    """Run a console if the settings ask for one; its URL. It is lent a token for metrics, unless it is given one."""
    if not settings.console:
        yield None
        return
    if flight_url is None:
        raise Failure(Exit.USAGE, "the console calls the server over Flight: leave out --flight off, or --console")
    parse_address(settings.console_http, "console_http")
    parts = urlsplit(flight_url)
    assert parts.hostname is not None and parts.port is not None, "a server listens on a port"
    url = url_of(parts.scheme, connectable(parts.hostname), parts.port)
    command = [sys.executable, "-m", "headrace", "console", "--url", url, "--http", settings.console_http]
    token = os.environ.get("HEADRACE_TOKEN") or access.lend("console", [("*", [Right.READ.value])])
    process = subprocess.Popen(
        [*command, "--parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"HEADRACE_TOKEN": token},
    )
    assert process.stdout is not None
    try:
        ready = re.search(r"ready on (\S+)", process.stdout.readline().decode(errors="replace"))
        if ready is None:
            raise Failure(Exit.USAGE, f"the console did not start: it ended with {process.wait()}; its reason is above")
        yield ready.group(1)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

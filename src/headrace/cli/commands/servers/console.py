"""`headrace console`: a web page for a server. The work is in the package headrace.console, imported only here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.listen_address import parse_address, url_of
from headrace.cli.options.shared import ServerOptions
from headrace.cli.terminal.output import print_line
from headrace.extras import needing

HTTP_DEFAULT: Final = "127.0.0.1:7072"

EXAMPLES: Final = """
People sign in with a token of the server, and may do what it allows. Where the server needs no token, the console on
loopback needs none either. The token of the console itself is used for charts only, and needs to read all topics.

Examples:

  headrace console

  headrace console --url headrace://127.0.0.1:7071 --http 127.0.0.1:8080

  headrace console --http 0.0.0.0:7072 --tls-certificate console.pem --tls-key console.key --allow-host console.example
"""


@with_option_groups
def console(
    *,
    http: Annotated[
        str, typer.Option(help="Listen address of the console; port 0 picks a free port.", metavar="HOST:PORT")
    ] = HTTP_DEFAULT,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of the console's certificate.", metavar="FILE")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its private key.", metavar="FILE")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Answer to this name too, beside localhost and the listen address.", metavar="HOST"),
    ] = None,
    poll_seconds: Annotated[
        float, typer.Option(help="Time between two samples for the charts.", min=0.2, max=300.0, metavar="SECONDS")
    ] = 5.0,
    parent: Annotated[int | None, typer.Option(help="End with this process.", metavar="PID", hidden=True)] = None,
    server: ServerOptions,
) -> None:
    """Run the console: topics, messages, groups and charts in a browser, until SIGTERM or Ctrl-C."""
    host, port = parse_address(http)
    if (tls_certificate is None) != (tls_key is None):
        raise Failure(Exit.USAGE, "TLS needs both --tls-certificate and --tls-key: give the missing one")
    address = server.address()
    from headrace.client.addresses import parse_addresses

    parse_addresses(address.url, address.field)
    with needing("console"):
        from headrace.console import server as console_server
        from headrace.console.settings import ConsoleSettings
    try:
        listener = console_server.bind(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(Exit.USAGE, f"cannot listen on {http}: {reason}; choose another address with --http") from None
    settings = ConsoleSettings(
        url=address.url,
        host=host,
        port=listener.getsockname()[1],
        token=address.token or "",
        ca=address.ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        allowed_hosts=tuple(allow_host or ()),
        poll_seconds=poll_seconds,
        parent=parent,
    )

    def say_ready() -> None:
        url = url_of("http" if tls_certificate is None else "https", host, settings.port)
        print_line(f"headrace console is ready on {url} for {settings.url}")
        sys.stdout.flush()

    console_server.serve(settings, listener, say_ready)

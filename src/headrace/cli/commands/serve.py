"""`headrace serve`: run a server. What it does then is in running.py, which is loaded only for this command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

EXAMPLES = """
Every setting can be given as a flag (or --set), as HEADRACE_… in the environment, and in a TOML file, in this order.

Examples:

  headrace serve

  headrace serve --store file:/var/lib/headrace --http 127.0.0.1:0 --flight off

  headrace serve --config /etc/headrace.toml --set broker.queue_bytes=536870912

  HEADRACE_LOG_LEVEL=debug headrace serve
"""


def serve(
    store: Annotated[
        str | None, typer.Option(help="Where messages are. \\[file:./headrace-data]", metavar="URL")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(help="Where to listen; port 0 takes a free one. \\[127.0.0.1:7070]", metavar="HOST:PORT"),
    ] = None,
    flight: Annotated[
        str | None,
        typer.Option(help="Where to listen for Arrow Flight, or off. \\[127.0.0.1:7071]", metavar="HOST:PORT"),
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(help="PEM file; with --tls-key: TLS only.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(help="PEM file of the key, without a password.", metavar="FILE")
    ] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="PEM file of who signs the certificates that clients need.", metavar="FILE")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. \\[info]")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text, json, or auto: text on a terminal, else json. \\[auto]")
    ] = None,
    access_log: Annotated[
        bool | None, typer.Option("--access-log/--no-access-log", help="A log line for every request.")
    ] = None,
    audit_log: Annotated[
        str | None, typer.Option(help="A file for refusals and changes, as JSON lines.", metavar="FILE")
    ] = None,
    require_tokens: Annotated[
        bool | None,
        typer.Option("--require-tokens/--no-require-tokens", help="Nobody without a token, on loopback too."),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="Any other setting, see packaging/headrace.toml.", metavar="NAME=VALUE")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with settings.", envvar="HEADRACE_CONFIG", metavar="FILE")
    ] = None,
) -> None:
    """Run a server until SIGTERM or Ctrl-C."""
    flags: dict[str, Any] = {
        "store": store,
        "http": http,
        "flight": flight,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "log_level": log_level,
        "log_format": log_format,
        "access_log": access_log,
        "audit_log": audit_log,
        "require_tokens": require_tokens,
    }
    # Loaded here: the other commands need nothing of it, and are quicker without.
    from headrace.cli.server.process import run
    from headrace.cli.server.settings import load

    settings = load(flags, set or (), os.environ, config)
    run(settings, os.environ)

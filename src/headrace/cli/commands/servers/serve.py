"""`headrace serve`: run a server. The work is in server/process.py, which is imported only for this command."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.options.groups import with_option_groups

# Flags that are the listen address of a section of the settings.
SECTIONS = frozenset({"native", "cursus", "kafka", "ydb"})

EXAMPLES = """
Each setting is taken from the first of: a flag (or --set), HEADRACE_… in the environment, the TOML file.

Examples:

  headrace serve

  headrace serve --console

  headrace serve --store file:/var/lib/headrace --http 127.0.0.1:0 --flight off

  headrace serve --config /etc/headrace.toml --set broker.queue_bytes=536870912

  HEADRACE_LOG_LEVEL=debug headrace serve
"""


@dataclass(frozen=True, slots=True)
class SettingFlags:
    """The settings that have a flag of their own."""

    store: Annotated[
        str | None,
        typer.Option(help="URL of the store that holds the messages. By default file:./headrace-data.", metavar="URL"),
    ] = None
    http: Annotated[
        str | None,
        typer.Option(
            help="Listen address for HTTP; port 0 picks a free port. By default 127.0.0.1:7070.", metavar="HOST:PORT"
        ),
    ] = None
    flight: Annotated[
        str | None,
        typer.Option(help="Listen address for Arrow Flight, or off. By default 127.0.0.1:7071.", metavar="HOST:PORT"),
    ] = None
    native: Annotated[
        str | None,
        typer.Option(
            help="Listen address of the native wire, over which Python clients publish faster, or off. By default off.",
            metavar="HOST:PORT",
        ),
    ] = None
    kafka: Annotated[
        str | None,
        typer.Option(help="Listen address for clients of Apache Kafka, or off. By default off.", metavar="HOST:PORT"),
    ] = None
    ydb: Annotated[
        str | None,
        typer.Option(help="Listen address for YDB's topic clients, or off. By default off.", metavar="HOST:PORT"),
    ] = None
    cursus: Annotated[
        str | None,
        typer.Option(
            help="Listen address for clients of cursus, port 9000 unless given, or off. By default off.",
            metavar="HOST:PORT",
        ),
    ] = None
    tls_certificate: Annotated[
        str | None,
        typer.Option(help="PEM file of the certificate. With --tls-key, the server accepts TLS only.", metavar="FILE"),
    ] = None
    tls_key: Annotated[
        str | None, typer.Option(help="PEM file of the private key, without a password.", metavar="FILE")
    ] = None
    tls_client_ca: Annotated[
        str | None,
        typer.Option(help="PEM file of the CA that signs client certificates; clients then need one.", metavar="FILE"),
    ] = None
    console: Annotated[
        bool | None,
        typer.Option("--console/--no-console", help="Run a console beside the server, see `headrace console`."),
    ] = None
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error. By default info.", metavar="LEVEL")
    ] = None
    log_format: Annotated[
        str | None,
        typer.Option(
            help="text, json, or auto (text on a terminal, otherwise json). By default auto.", metavar="FORMAT"
        ),
    ] = None
    access_log: Annotated[bool | None, typer.Option("--access-log/--no-access-log", help="Log every request.")] = None
    audit_log: Annotated[
        str | None, typer.Option(help="Write denied requests and changes to this file, as JSON lines.", metavar="FILE")
    ] = None
    require_tokens: Annotated[
        bool | None,
        typer.Option("--require-tokens/--no-require-tokens", help="Require a token, on loopback too."),
    ] = None

    def given(self) -> dict[str, Any]:
        """The flags by the name of their setting; None if not given."""
        return {f"{name}.listen" if name in SECTIONS else name: value for name, value in asdict(self).items()}


@with_option_groups
def serve(
    *,
    flags: SettingFlags,
    set: Annotated[
        list[str] | None, typer.Option(help="Set any other setting, see packaging/headrace.toml.", metavar="NAME=VALUE")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings.", envvar="HEADRACE_CONFIG", metavar="FILE")
    ] = None,
) -> None:
    """Run a server until SIGTERM or Ctrl-C."""
    # Imported here: other commands do not need it and start faster without it.
    from headrace.cli.server.process import run
    from headrace.cli.server.settings import load, origins

    given = flags.given()
    settings = load(given, set or (), os.environ, config)
    run(settings, os.environ, origins(given, set or (), os.environ, config))

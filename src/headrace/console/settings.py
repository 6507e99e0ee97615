"""The settings of a console."""

from __future__ import annotations

from pathlib import Path

import msgspec


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a console.

    url: the broker, headrace://HOST:PORT; several servers of one store are separated by commas.
    host, port: where the console listens; port 0 picks a free port.
    token: what the poller sends. Nobody who opens the console gets its rights. Empty: that of somebody who is signed in
        and may read all topics.
    ca: PEM file of the CA that signed the certificate of the broker.
    tls_certificate, tls_key: PEM files for the console itself.
    allowed_hosts: names by which browsers may call the console, beside localhost and its address.
    poll_seconds: time between two samples.
    parent: process id of the server that started the console, which ends when that one does.
    """

    url: str
    host: str = "127.0.0.1"
    port: int = 7072
    token: str = ""
    ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    poll_seconds: float = 5.0
    parent: int | None = None

"""The PEM files that a user names for TLS, checked before a connection is made: gRPC does not say what is wrong."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from headrace.cli.exits import Exit, Failure


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """Whom to trust, with the client's own certificate if the environment names one."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise Failure(Exit.USAGE, f"cannot use --ca {ca}: {error}") from None
    certificate, key = os.environ.get("HEADRACE_CLIENT_CERTIFICATE"), os.environ.get("HEADRACE_CLIENT_KEY")
    if certificate or key:
        try:
            # With no password, since OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate or "", key or "", password="")
        except (OSError, ValueError) as error:
            names = f"HEADRACE_CLIENT_CERTIFICATE {certificate!r} and HEADRACE_CLIENT_KEY {key!r}"
            line = f"cannot use {names}: {error}; both name PEM files, the key has no password"
            raise Failure(Exit.USAGE, line) from None
    return context

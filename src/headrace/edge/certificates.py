"""What a verified client certificate is called, the same on every port."""

from __future__ import annotations

from typing import Any, Final

# As gRPC names its peers, so that a certificate means the same on every port.
_ALTERNATIVE_NAMES: Final = frozenset({"DNS", "email", "URI", "IP Address"})


def certificate_name(certificate: dict[str, Any] | None) -> str | None:
    """What a verified certificate, as `SSLSocket.getpeercert` gives it, is called.

    That is the first of its subject alternative names; without any, its common name.
    """
    if not certificate:
        return None
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in _ALTERNATIVE_NAMES:
            return str(name)
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    return next((str(value) for key, value in parts if key == "commonName"), None)

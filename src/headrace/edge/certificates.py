"""Certificates: what a verified one of a client is called, the same on every port; how long one is valid. Pure."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from headrace.core.limits import MICROSECONDS

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


_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of ASN.1: the version of a certificate, which may be missing, and the two ways to write a time.
_VERSION, _UTC_TIME, _LONG_TIME = 0xA0, 0x17, 0x18


def validities(pem: str) -> list[tuple[int, int]]:
    """From when and until when each certificate of a PEM file is valid, in microseconds since 1970.

    Python's ssl tells it only of a peer whose certificate it has verified. Raises ValueError for other bytes.
    """
    try:
        return [_validity(ssl.PEM_cert_to_DER_cert(block)) for block in _PEM.findall(pem)]
    except (IndexError, StopIteration) as error:
        raise ValueError("a certificate ends too early") from error


def _validity(der: bytes) -> tuple[int, int]:
    """Of one certificate: the fifth part of what is signed, or the fourth without a version."""
    _, certificate = next(_parts(der))
    _, signed = next(_parts(certificate))
    parts = [content for tag, content in _parts(signed) if tag != _VERSION]
    begin, end = (_time_us(tag, content) for tag, content in _parts(parts[3]))
    return begin, end


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each part of a sequence in DER."""
    at = 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(der[at : at + count]), at + count
        yield tag, der[at : at + size]
        at += size


def _time_us(tag: int, content: bytes) -> int:
    text = content.decode()
    if tag == _UTC_TIME:
        # RFC 5280: years of two digits are 1950 to 2049.
        text = ("19" if text[0] >= "5" else "20") + text
    elif tag != _LONG_TIME:
        raise ValueError(f"a time of a certificate has the tag {tag:#x}")
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * MICROSECONDS

"""Addresses of servers, as URLs: `headrace://HOST:PORT`, `headrace+tls://HOST:PORT`, several with commas between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from headrace.core.errors import InvalidInput

PORT_DEFAULT: Final = 7071
_SCHEMES: Final = {"headrace": "grpc+tcp", "headrace+tls": "grpc+tls"}
_RULE: Final = "it must be headrace://HOST:PORT or headrace+tls://HOST:PORT, several with commas between"


@dataclass(frozen=True, slots=True)
class Address:
    """One server: its URL as it was given, and as Flight wants it."""

    url: str
    location: str


def parse_addresses(urls: str) -> list[Address]:
    """The addresses in a text.

    >>> [address.location for address in parse_addresses("headrace://one:7071, headrace+tls://two")]
    ['grpc+tcp://one:7071', 'grpc+tls://two:7071']
    """
    if not isinstance(urls, str):
        raise InvalidInput("url", repr(urls)[:100], _RULE)
    return [_parse(url.strip()) for url in urls.split(",")]


def _parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT_DEFAULT
    except ValueError:
        raise InvalidInput("url", repr(url)[:100], _RULE) from None
    if parts.scheme not in _SCHEMES or not host or parts.path not in ("", "/") or parts.query or parts.username:
        raise InvalidInput("url", repr(url)[:100], _RULE)
    shown = f"[{host}]" if ":" in host else host
    return Address(url, f"{_SCHEMES[parts.scheme]}://{shown}:{port}")

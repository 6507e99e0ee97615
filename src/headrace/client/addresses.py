"""Addresses of servers, as URLs: `headrace://HOST:PORT`, `headrace+tls://HOST:PORT`.

Several are separated by commas, or given as a list; the scheme may be omitted after the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from headrace.core.errors import InvalidInput

PORT_DEFAULT: Final = 7071
_SCHEMES: Final = {"headrace": "grpc+tcp", "headrace+tls": "grpc+tls"}
_RULE: Final = "it must be headrace://HOST:PORT or headrace+tls://HOST:PORT; separate several by commas"


@dataclass(frozen=True, slots=True)
class Address:
    """One server: its URL as given, and its Flight location."""

    url: str
    location: str


def parse_addresses(urls: str | Sequence[str], field: str = "url") -> list[Address]:
    """The addresses in a text, or in a list of such; `field` is what errors call it.

    >>> [address.location for address in parse_addresses("headrace://one:7071, two:7072, headrace+tls://three")]
    ['grpc+tcp://one:7071', 'grpc+tcp://two:7072', 'grpc+tls://three:7071']
    """
    given = [urls] if isinstance(urls, str) else urls
    if not isinstance(given, Sequence) or not given or not all(isinstance(url, str) for url in given):
        raise InvalidInput(field, repr(urls)[:100], _RULE)
    texts = [text.strip() for url in given for text in url.split(",")]
    scheme = texts[0].partition("://")[0]
    return [_parse(field, text if "://" in text else f"{scheme}://{text}") for text in texts]


def _parse(field: str, url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT_DEFAULT
    except ValueError:
        raise InvalidInput(field, repr(url)[:100], _RULE) from None
    if parts.scheme not in _SCHEMES or not host or parts.path not in ("", "/") or parts.query or parts.username:
        raise InvalidInput(field, repr(url)[:100], _RULE)
    shown = f"[{host}]" if ":" in host else host
    return Address(url, f"{_SCHEMES[parts.scheme]}://{shown}:{port}")

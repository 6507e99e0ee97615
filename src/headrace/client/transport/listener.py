"""What listens at an address where no server answered: the error then names a wrong port.

Each question is a connection of its own. A server that cannot be reached, or is silent, is not asked a second one: it
is no wrong port, and the caller has waited already.
"""

from __future__ import annotations

import socket
import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

_CONNECT_SECONDS: Final = 0.3
_ANSWER_SECONDS: Final = 1.0
_HTTP_REQUEST: Final = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# The settings of HTTP/2, with which a server of gRPC begins: three bytes of length, then their type.
_SETTINGS: Final = 4
# ApiVersions, version 0, without a client id: an answer has the number of the request.
_KAFKA_NUMBER: Final = 7071
_KAFKA_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, _KAFKA_NUMBER, -1)
_KINDS: Final = {
    "headrace": "Arrow Flight without TLS",
    "headrace+tls": "Arrow Flight over TLS",
    "http": "HTTP without TLS",
    "https": "TLS, but not Arrow Flight",
    "kafka": "the protocol of Kafka",
}
_CALLED: Final = ("headrace", "headrace+tls")
_CURE: Final = "clients call the Flight port, headrace://HOST:7071 or headrace+tls://HOST:7071 by default"


def wrong_port(urls: str) -> str | None:
    """What is wrong with the first of some addresses where another protocol is spoken; None if none is."""
    with suppress(OSError, ValueError):
        for url in urls.split(","):
            parts = urlsplit(url.strip())
            scheme = _scheme(parts.hostname, parts.port) if parts.hostname and parts.port else None
            if scheme is not None and scheme != parts.scheme:
                cure = f"write it as {scheme}://{parts.netloc}" if scheme in _CALLED else _CURE
                return f"{parts.netloc} speaks {_KINDS[scheme]}: {cure}"
    return None


def _scheme(host: str, port: int) -> str | None:
    """The scheme that an address should have."""
    told = _told(host, port, _HTTP_REQUEST)
    if told.startswith(b"HTTP/"):
        return "http"
    if told[3:4] == bytes([_SETTINGS]):
        return "headrace"
    with suppress(OSError), closing(_over_tls(host, port)) as secured:
        return "headrace+tls" if secured.selected_alpn_protocol() == "h2" else "https"
    told = _told(host, port, _KAFKA_REQUEST)
    return "kafka" if told[4:8] == struct.pack(">i", _KAFKA_NUMBER) else None


def _told(host: str, port: int, request: bytes) -> bytes:
    """The first bytes of an answer; none if the connection ends without one. Raises TimeoutError at a silent server."""
    with _connected(host, port) as connection, suppress(ConnectionError):
        connection.sendall(request)
        return connection.recv(64)
    return b""


def _connected(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), _CONNECT_SECONDS)
    connection.settimeout(_ANSWER_SECONDS)
    return connection


def _over_tls(host: str, port: int) -> ssl.SSLSocket:
    """A connection that trusts everybody: nothing is sent on it."""
    # It takes long to import, and few need it.
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context.wrap_socket(_connected(host, port), server_hostname=host)

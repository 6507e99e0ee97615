"""The metrics, the health and the clients of all servers of a store, for `headrace status`, `top` and `client list`.

The client lists the servers; each is asked over HTTP, with the same token. A token that may not read all topics gets no
metrics. An address that only the server's own machine knows is replaced by the host of `--url`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from headrace.cli.options.listen_address import is_wildcard
from headrace.cli.remote.address import ServerAddress
from headrace.cli.remote.connection import running_command
from headrace.client.identity import own_identity
from headrace.console.monitor.sample import Sample, parse
from headrace.core.health.findings import Health, HealthFinding, merged
from headrace.core.health.rules import silent
from headrace.core.reports.clients import IDENTITY_HEADER
from headrace.core.reports.descriptions import ServerDescription
from headrace.wire.descriptions import ClientOut

if TYPE_CHECKING:
    from headrace.client import Client

_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Scrape:
    """What the servers measured, and why some of them did not answer."""

    servers: Sequence[ServerDescription]
    sample: Sample
    problems: Sequence[str]


def scrape(client: Client, address: ServerAddress) -> Scrape:
    """The metrics of every server, put together."""
    servers = client.list_servers()
    texts: list[str] = []
    problems: list[str] = []
    for server in servers:
        text = metrics_text(server, address)
        if isinstance(text, Exception):
            problems.append(f"no metrics of {server.addresses.get('http')}: {str(text) or type(text).__name__}")
        else:
            texts.append(text)
    return Scrape(servers, parse(texts, time.time()), problems)


def metrics_text(server: ServerDescription, address: ServerAddress) -> str | Exception:
    """The metrics of one server, empty if it has no HTTP port; or why there are none."""
    url = server.addresses.get("http")
    try:
        return _answer(url, "/metrics", address).decode(errors="replace") if url else ""
    except (OSError, HTTPException, _Refused) as error:
        return error


def health(client: Client, address: ServerAddress, servers: Sequence[ServerDescription]) -> Health:
    """The verdict of the server that the client calls, and of the others, which judge themselves too."""
    own = client.describe_health()
    others: list[Health] = []
    silences: list[HealthFinding] = []
    for server in servers:
        url = server.addresses.get("http")
        if url is None or server.id == own.server:
            continue
        try:
            others.append(msgspec.json.decode(_answer(url, "/v1/health", address), type=Health))
        except (OSError, HTTPException, _Refused, msgspec.DecodeError) as error:
            silences.append(silent(url, str(error) or type(error).__name__))
    return merged(own, others).with_more(silences)


def clients(
    client: Client, address: ServerAddress, servers: Sequence[ServerDescription]
) -> tuple[list[ClientOut], list[str]]:
    """The clients of all servers, those that called last first, and which servers did not say."""
    own = client.list_clients()
    found, problems = [ClientOut.of(each) for each in own], []
    # The client that asks is one itself.
    answered = own[0].server if own else ""
    for server in servers:
        url = server.addresses.get("http")
        if url is None or server.id == answered:
            continue
        try:
            answer = _answer(url, "/v1/clients", address)
            found += msgspec.json.decode(answer, type=dict[str, list[ClientOut]])["clients"]
        except (OSError, HTTPException, _Refused, msgspec.DecodeError) as error:
            problems.append(f"no clients of {url}: {str(error) or type(error).__name__}")
    return sorted(found, key=lambda each: -each.seen_us), problems


class _Refused(Exception):
    """A server answered with an error."""


def _answer(url: str, path: str, address: ServerAddress) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or is_wildcard(host):
        host = urlsplit(address.url.partition(",")[0]).hostname or "127.0.0.1"
    connection: HTTPConnection
    if parts.scheme == "https":
        from headrace.cli.remote.tls import tls_context

        connection = HTTPSConnection(host, parts.port, timeout=_TIMEOUT_SECONDS, context=tls_context(address.ca))
    else:
        connection = HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)
    headers = {IDENTITY_HEADER: own_identity(running_command()).decode()}
    headers |= {"Authorization": f"Bearer {address.token}"} if address.token else {}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status in (401, 403):
        raise _Refused("the token may not read all topics")
    if answer.status != 200:
        raise _Refused(f"it answered {answer.status} {answer.reason}")
    return body

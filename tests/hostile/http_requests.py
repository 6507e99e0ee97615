"""Requests of every route of the HTTP application, made from its own table of routes."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from litestar.routes import HTTPRoute

from headrace.broker import Broker
from headrace.protocols.http.app import make_litestar
from headrace.protocols.http.routes import queue_api
from headrace.protocols.http.settings import HttpSettings
from tests.hostile.json_requests import FILLED, FILLED_FOR, JsonBody
from tests.hostile.target import WIDE, Address

MIB: Final = 1 << 20
HEAD_BYTES: Final = 62_000
QUERIES_NEEDED: Final = ("topic", "consumer_id", "offset")
# Of a stream that does not end only the head is read.
EVENTS: Final = "text/event-stream"


class QueueFields(msgspec.Struct):
    """What any route of the queue API takes; more does no harm."""

    topic: str
    name: str
    message: str
    producer_id: int
    consumer_id: int
    offset: int


@dataclass(frozen=True)
class Route:
    """A way to call an operation: what is in its body, and the names of its query parameters."""

    method: str
    path: str
    operation: str
    body: type[msgspec.Struct] | None
    queries: tuple[str, ...]
    topic: str = WIDE

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def json(self) -> JsonBody | None:
        """Its bodies."""
        return None if self.body is None else JsonBody(self.body, self.operation, self.topic)

    @property
    def usual_body(self) -> bytes | None:
        """A body that is served."""
        return None if self.json is None else self.json.encoded()

    @property
    def token(self) -> str:
        """Whose token: what is on the whole server needs one for everything."""
        return "attacker" if "{" in self.path or self.body else "admin"

    def target(self, **more: str) -> str:
        """Path and query, with names of things that exist."""
        known = FILLED | {"topic": self.topic, "producer": "till-7", "path": "x"}
        known |= FILLED_FOR.get(self.operation, {})
        named = [(part, _parameter(part)) for part in self.path.split("/")]
        parts = [part if name is None else quote(str(known[name]), safe="") for part, name in named]
        needed = {name: known[name] for name in self.queries if name in QUERIES_NEEDED}
        return "/".join(parts) + "?" + urlencode(needed | more)[:HEAD_BYTES]


def _parameter(part: str) -> str | None:
    """The name in a part of a path such as `{topic:str}`."""
    return part.strip("{}").partition(":")[0] if part.startswith("{") else None


def routes() -> Iterator[Route]:
    """All routes of the application."""
    with Broker.open("memory:") as broker:
        app = make_litestar(broker, broker.access, HttpSettings())
        for route in app.routes:
            if not isinstance(route, HTTPRoute):
                continue
            inside = {_parameter(part) for part in route.path.split("/")}
            for method, (handler, _) in sorted(route.route_handler_map.items(), key=lambda entry: entry[0]):
                if method == "OPTIONS":
                    continue
                docs = handler.opt.get("docs")
                body = docs.body if docs is not None else None
                queries = set(handler.parsed_fn_signature.parameters) - inside - {"request"} - app.dependencies.keys()
                if route.path in queue_api.PATHS:
                    body = QueueFields if method == "POST" else None
                    queries = set(QueueFields.__struct_fields__) if body is None else set()
                yield Route(method, route.path, str(handler.opt["operation"]), body, tuple(sorted(queries)))


def asked(address: Address, route: Route, body: bytes | None, **query: str) -> tuple[int, int]:
    """Status and size of the answer."""
    headers = {"authorization": f"Bearer {address.tokens[route.token]}"}
    headers |= {} if body is None else {"content-type": "application/json"}
    with closing(http.client.HTTPConnection("127.0.0.1", address.http, timeout=60)) as connection:
        connection.request(route.method, route.target(**query), body, headers)
        answer = connection.getresponse()
        size = 0
        while EVENTS not in answer.headers.get("content-type", "") and (part := answer.read(MIB)):
            size += len(part)
        return answer.status, size


# Sorted: the application has the methods of a path in no order.
ROUTES: Final = sorted(routes(), key=lambda route: (route.path, route.method))

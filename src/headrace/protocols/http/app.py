"""The ASGI application: assembles routes, errors, access and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from litestar import Litestar, Request, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.errors import HeadraceError
from headrace.edge.access import Gate, Leases
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.edge.limits import Limits
from headrace.protocols.http.errors import answer_anything, answer_headrace_error, answer_http_exception
from headrace.protocols.http.middleware.access import guard
from headrace.protocols.http.middleware.headers import with_headers
from headrace.protocols.http.middleware.limits import with_limits
from headrace.protocols.http.middleware.origins import with_origin_checks
from headrace.protocols.http.openapi.page import openapi_config
from headrace.protocols.http.requests.negotiation import check_body_type
from headrace.protocols.http.requests.raw_paths import with_raw_paths
from headrace.protocols.http.requests.strict_json import close_decoders
from headrace.protocols.http.requests.strict_query import check_query
from headrace.protocols.http.routes import (
    events,
    groups,
    identity,
    member_events,
    members,
    messages,
    pages,
    queue_api,
    sources,
    topics,
)
from headrace.protocols.http.routes.monitoring import health, metrics, pipelines, servers
from headrace.protocols.http.settings import HttpSettings

API: Final = "/v1"

_HANDLERS: Final = [
    *topics.HANDLERS,
    *messages.HANDLERS,
    *events.HANDLERS,
    *groups.HANDLERS,
    *members.HANDLERS,
    *member_events.HANDLERS,
    *sources.HANDLERS,
    *identity.HANDLERS,
    *servers.HANDLERS,
    *pipelines.HANDLERS,
    *health.API_HANDLERS,
]


def make_app(
    broker: Broker,
    access: Access,
    settings: HttpSettings | None = None,
    draining: Draining | None = None,
    limits: Limits | None = None,
    flight_port: int | None = None,
) -> ASGIApp:
    """The application for an open broker; it closes only what it opened itself."""
    settings = settings or HttpSettings()
    return with_edges(make_litestar(broker, access, settings, draining, limits, flight_port), access, settings)


def with_edges(app: ASGIApp, access: Access, settings: HttpSettings) -> ASGIApp:
    """The application with its middleware, outermost last."""
    app = with_raw_paths(app, API)
    app = with_origin_checks(app, access, settings, [path for path, _ in pages.POLICIES])
    return with_headers(with_limits(app, settings), pages.POLICIES)


def make_litestar(
    broker: Broker,
    access: Access,
    settings: HttpSettings,
    draining: Draining | None = None,
    limits: Limits | None = None,
    flight_port: int | None = None,
) -> Litestar:
    """The same without the routing by raw paths, for those who look at its routes."""
    bridge, gate = Bridge(broker, draining, settings.stop_seconds), Gate(access, limits)
    bridge.draining.on_begin(broker.end_waits)
    bounds = metrics.Bounds(
        topics_max=settings.metrics_topics_max,
        groups_max=settings.metrics_topics_max,
        partitions_max=settings.metrics_partitions_max,
    )
    parts = {
        "bridge": bridge,
        "wakes": LoopWakeups(bridge),
        "leases": Leases(gate),
        "http_settings": settings,
        "scrapes": metrics.Scrapes(bridge, bounds, gate.limits),
        "alive": health.Alive(flight_port),
    }

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            bridge.close()
            close_decoders()

    app = Litestar(
        route_handlers=[
            *pages.HANDLERS,
            *health.HANDLERS,
            *metrics.HANDLERS,
            queue_api.make_router(),
            Router(API, route_handlers=_HANDLERS, before_request=_admit_to_api),
        ],
        before_request=_admit,
        dependencies={name: _provided(part) for name, part in parts.items()},
        exception_handlers={
            HeadraceError: answer_headrace_error,
            MethodNotAllowedException: queue_api.answer_wrong_method,
            HTTPException: answer_http_exception,
            Exception: answer_anything,
        },
        request_max_body_size=settings.request_bytes_max,
        lifespan=[lifespan],
        # The server process configures logging; the framework must not override it.
        logging_config=None,
        openapi_config=openapi_config(),
    )
    app.state.gate = gate
    _check_guarded(app)
    return app


# Not guards of the framework: it copies the whole handler for every call of each.


async def _admit(request: Request[Any, Any, Any]) -> None:
    await guard(request, request.route_handler)


async def _admit_to_api(request: Request[Any, Any, Any]) -> None:
    await guard(request, request.route_handler)
    await check_body_type(request, request.route_handler)
    await check_query(request, request.route_handler)


def _check_guarded(app: Litestar) -> None:
    """Every route asks the guard: a router or handler with a `before_request` of its own would not."""
    for route in app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else [None]:
            asked = None if handler is None else handler.resolve_before_request()
            if asked not in (_admit, _admit_to_api):
                raise RuntimeError(f"{route.path} is not guarded")


def _provided(part: object) -> Provide:
    return Provide(lambda: part, sync_to_thread=False, use_cache=True)

"""The application: routes, errors, access and limits put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import SwaggerRenderPlugin
from litestar.types import ASGIApp

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.errors import HeadraceError
from headrace.rest import health, messages, metrics, queue_api, topics
from headrace.rest.access import guard
from headrace.rest.crossing import Crossing
from headrace.rest.draining import Draining
from headrace.rest.paths import with_raw_paths
from headrace.rest.problems import answer_anything, answer_headrace_error, answer_http_exception
from headrace.rest.settings import RestSettings

API: Final = "/v1"


def make_app(
    broker: Broker, access: Access, settings: RestSettings | None = None, draining: Draining | None = None
) -> ASGIApp:
    """The application over an open broker; it closes nothing but what it opened itself."""
    return with_raw_paths(make_litestar(broker, access, settings or RestSettings(), draining), API)


def make_litestar(broker: Broker, access: Access, settings: RestSettings, draining: Draining | None = None) -> Litestar:
    """The same without the routing by raw paths, for those who look at its routes."""
    crossing = Crossing(broker, draining)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            crossing.close()

    app = Litestar(
        route_handlers=[
            *health.HANDLERS,
            *metrics.HANDLERS,
            queue_api.make_router(),
            Router(API, route_handlers=[*topics.HANDLERS, *messages.HANDLERS]),
        ],
        guards=[guard],
        dependencies={"crossing": Provide(lambda: crossing, sync_to_thread=False, use_cache=True)},
        exception_handlers={
            HeadraceError: answer_headrace_error,
            MethodNotAllowedException: queue_api.answer_wrong_method,
            HTTPException: answer_http_exception,
            Exception: answer_anything,
        },
        request_max_body_size=settings.body_bytes_max,
        lifespan=[lifespan],
        openapi_config=OpenAPIConfig(
            title="Headrace", version="1", path="/docs", render_plugins=[SwaggerRenderPlugin()]
        ),
    )
    app.state.access = access
    return app

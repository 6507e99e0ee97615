"""The API documentation page and its OpenAPI document; nothing is loaded from other hosts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Router
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin

from headrace.protocols.http.openapi.document import COMPONENTS, SECURITY, document

PATH: Final = "/docs"
DESCRIPTION: Final = (
    "A durable topic broker. Names in paths are percent-encoded, slashes too. Messages are JSON or Arrow IPC streams, "
    "according to Content-Type and Accept. Every error is a problem+json document with a stable `code`; `retry` says "
    "whether the same request may succeed later."
)


class Page(OpenAPIRenderPlugin):
    """The page for people."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The page, which loads the document."""
        return page()


class Document(JsonRenderPlugin):
    """The document for programs."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The document, created once."""
        return _encoded(request.app)


@cache
def page() -> bytes:
    """The page itself."""
    return (files("headrace.protocols.http.openapi") / "docs.html").read_bytes()


def _encoded(app: Litestar) -> bytes:
    encoded: bytes | None = app.state.get("openapi_document")
    if encoded is None:
        encoded = app.state["openapi_document"] = msgspec.json.encode(document(app))
    return encoded


def openapi_config() -> OpenAPIConfig:
    """The configuration of Litestar."""
    return OpenAPIConfig(
        title="Headrace",
        version="1",
        description=DESCRIPTION,
        use_handler_docstrings=True,
        components=COMPONENTS,
        security=SECURITY,
        render_plugins=[Page(), Document()],
        openapi_router=Router(PATH, route_handlers=[], include_in_schema=False, opt={"operation": "docs"}),
    )

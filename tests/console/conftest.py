"""A server with a console and a real Chromium for each file of tests.

A page that is opened by the fixture `visit` fails its test if the browser reported an error, or asked another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

import headrace
from headrace.client.client import Client
from tests.console.browser import HOW_TO_INSTALL, find_chromium, opened_browser
from tests.console.processes import ConsoleProcess
from tests.server_process import PATIENCE_SECONDS, ServerProcess

# What a browser writes about an answer that a test asks for.
EXPECTED = ("the server responded with a status of 4", "the server responded with a status of 503")


@dataclass
class Site:
    """A server and its console."""

    server: ServerProcess
    console: ConsoleProcess
    client: Client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server without tokens, with a console."""
    server = ServerProcess(f"file:{tmp_path_factory.mktemp('store')}/store")
    console = ConsoleProcess(server.url)
    with headrace.connect(server.url) as client:
        yield Site(server, console, client)
    console.close()
    server.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser."""
    if find_chromium() is None:
        pytest.skip(HOW_TO_INSTALL)
    with opened_browser() as browser:
        yield browser


@dataclass
class Witness:
    """What went wrong in a browser."""

    problems: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext, host: str) -> None:
        context.on("console", lambda message: self._note(message))
        context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        context.on(
            "request",
            lambda request: (
                None
                if urlsplit(request.url).netloc in (host, "") or request.url.startswith(("data:", "blob:"))
                else self.problems.append(f"request to another host: {request.url}")
            ),
        )

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in EXPECTED):
            self.problems.append(f"{message.type}: {message.text}")


Visit = Callable[..., Page]


@pytest.fixture
def visit(chromium: Browser, site: Site) -> Iterator[Visit]:
    """Opens a path of the console in a browser profile of its own; pages of one test share it."""
    witness = Witness()
    contexts: dict[str, BrowserContext] = {}

    def open_page(path: str, base: str = site.console.url, **options: object) -> Page:
        if base not in contexts:
            shown: dict[str, object] = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB"}
            contexts[base] = chromium.new_context(**(shown | options))  # type: ignore[arg-type]
            contexts[base].set_default_timeout(PATIENCE_SECONDS * 1000)
            witness.watch(contexts[base], urlsplit(base).netloc)
        page = contexts[base].new_page()
        page.goto(base + path)
        return page

    yield open_page
    for context in contexts.values():
        context.close()
    assert witness.problems == []

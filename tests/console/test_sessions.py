"""Who gets a session, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from headrace.console import sessions
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import PAGES_MAX, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
from headrace.console.sign_in import SignIn
from headrace.console.view.frame import count_page
from headrace.core.errors import Unauthenticated
from headrace.core.rights import Caller
from tests.console.conftest import Site


def test_a_console_that_others_reach_admits_nobody_to_a_server_without_tokens(site: Site) -> None:
    async def sign_in() -> None:
        reached = Sessions(ConsoleSettings(url=site.server.url), allow_anonymous=False)
        assert await reached.sign_in_without_token() is None
        for token in ("", "anything", "hr_0123456789ab_secret"):
            with pytest.raises(Unauthenticated, match="no tokens yet"):
                await reached.sign_in(token)

    asyncio.run(sign_in())


@pytest.mark.parametrize("token", ["é", "a\nb", "a\0b", "x" * 501])
def test_what_cannot_be_a_token_is_refused_without_a_call(token: str) -> None:
    with pytest.raises(Unauthenticated, match="not a token"):
        asyncio.run(Sessions(ConsoleSettings(url="headrace://127.0.0.1:1"), allow_anonymous=True).sign_in(token))


def test_a_session_ends_when_the_last_token_is_revoked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CHECK_SECONDS", 0.0)

    async def check() -> None:
        known = Sessions(ConsoleSettings(url=site.server.url), allow_anonymous=True)
        session = await known.sign_in("")
        await known.check(session)
        # As if it had been made with a token that the server had then.
        session.caller = msgspec.structs.replace(session.caller, token_id="0123456789ab")
        with pytest.raises(Unauthenticated, match="revoked"):
            await known.check(session)
        await known.close()

    asyncio.run(check())


def test_a_page_counts_until_it_is_closed() -> None:
    session = SignedIn("id", Caller("ann", ()), cast(Any, None), "")
    closed: list[Callable[[], None]] = []

    class Page:
        def on_delete(self, call: Callable[[], None]) -> None:
            closed.append(call)

    for _ in range(PAGES_MAX):
        assert session.has_room
        count_page(session, cast(Any, Page()))
    assert not session.has_room
    closed[0]()
    assert session.has_room


def test_a_session_with_too_many_pages_is_refused_another(site: Site) -> None:
    async def admit() -> None:
        settings = ConsoleSettings(url=site.server.url)
        known = Sessions(settings, allow_anonymous=True)
        sign_in = SignIn(known, Poller(settings, known), settings.url, 7072, is_tls=False)
        session = await known.sign_in("")
        cookie = f"headrace_console_7072={session.id}".encode()
        request = Request({"type": "http", "method": "GET", "path": "/", "headers": [(b"cookie", cookie)]})
        assert await sign_in.admit(request) is session
        session.pages = PAGES_MAX
        refused = await sign_in.admit(request)
        assert isinstance(refused, Response) and refused.status_code == 503
        assert b"close some, and try again" in bytes(refused.body)
        await known.close()

    asyncio.run(admit())

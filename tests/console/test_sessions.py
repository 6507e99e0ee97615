"""Who gets a session, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from headrace.console import sessions
from headrace.console.sessions import PAGES_MAX, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
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

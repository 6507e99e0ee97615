"""Sessions: who is signed in, each with a client of their own that sends their token.

The browser holds a random session id in a cookie (HttpOnly, SameSite=Strict), never the token. Where the broker needs
no token, there is a session without one, on loopback only; all share it, so that visitors without cookies, such as
health checks, cannot crowd out others. A session ends by signing out, after twelve idle hours without an open page,
when the token is refused, or with the process.

A token has a limit of sessions: beyond it, that token's session idle longest ends. Beyond the limit for all tokens, the
token with the most loses one. So no token can end the sessions of one that has fewer.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from headrace import aio
from headrace.console.settings import ConsoleSettings
from headrace.core.errors import AccessDenied, Closed, Forbidden, HeadraceError, Unauthenticated
from headrace.core.health.findings import Health
from headrace.core.rights import Caller, Right

IDLE_SECONDS: Final = 12 * 3600.0
SESSIONS_MAX: Final = 200
SESSIONS_OF_TOKEN_MAX: Final = 50
TOKEN_CHARACTERS_MAX: Final = 500
# What the servers see the console as.
CLIENT_ID: Final = "headrace console"
# How long a call of a page tries to reach the broker before the page says that it cannot.
CALL_SECONDS: Final = 8.0
# How long a page is drawn before it is shown with what there is: its calls may wait for others of its session.
PAGE_SECONDS: Final = 12.0
# How long a page waits for its browser, which may be slow, before it does what needs one.
BROWSER_SECONDS: Final = 60.0
# How many pages a session may have open: each takes about a megabyte.
PAGES_MAX: Final = 200
# A page that shows samples only does not call the broker: its token is checked this often.
CHECK_SECONDS: Final = 5.0


@dataclass
class SignedIn:
    """Somebody who is signed in."""

    id: str
    caller: Caller
    client: aio.AsyncClient
    token: str
    used_at: float = field(default_factory=time.monotonic)
    checked_at: float = field(default_factory=time.monotonic)
    is_over: bool = False
    pages: int = 0
    # The verdict on the servers, of what this token may see, and after which poll it was asked for.
    health: tuple[int, Health] | None = None

    def may(self, right: Right, topic: str = "*", group: str | None = None) -> bool:
        """Whether the token gives a right; the broker checks again."""
        return self.caller.may(right, topic, group)

    def may_read(self, topic: str) -> bool:
        """Whether the token may read a topic."""
        return self.caller.may(Right.READ, topic)

    def is_idle(self, now: float) -> bool:
        """Whether it was abandoned: no page is open, and none was asked for in a long time."""
        return not self.pages and now - self.used_at > IDLE_SECONDS

    @property
    def has_room(self) -> bool:
        """Whether it may open another page."""
        return self.pages < PAGES_MAX

    @property
    def may_administer(self) -> bool:
        """Whether the token may do everything, as operations on tokens and the audit log need."""
        try:
            self.caller.require_full_access()
        except Forbidden:
            return False
        return True

    @property
    def sees_all(self) -> bool:
        """Whether the token may read all topics."""
        return self.caller.may(Right.READ, "*")


class Sessions:
    """All sessions of a console."""

    def __init__(self, settings: ConsoleSettings, allow_anonymous: bool) -> None:
        self._settings = settings
        self._allow_anonymous = allow_anonymous
        self._by_id: dict[str, SignedIn] = {}
        self._anonymous: SignedIn | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def find(self, session_id: str | None) -> SignedIn | None:
        """The session of an id, if it has not ended."""
        session = self._by_id.get(session_id or "")
        if session is None:
            return None
        now = time.monotonic()
        if session.is_idle(now):
            self.end(session)
            return None
        session.used_at = now
        return session

    async def sign_in(self, token: str) -> SignedIn:
        """A new session; raises what the broker says about the token."""
        if len(token) > TOKEN_CHARACTERS_MAX or not (token.isascii() and token.isprintable()):
            # gRPC refuses to send it, which looks as if no server answered.
            raise Unauthenticated("this is not a token")
        # An empty token, not None: the token in the environment of the console is not for those who open it.
        client = aio.connect(
            self._settings.url,
            token,
            root_certificates=self._settings.ca,
            timeout_seconds=CALL_SECONDS,
            client_id=CLIENT_ID,
        )
        try:
            identity = await client.whoami()
            if identity.token_id is None and not self._allow_anonymous:
                # It would accept any text as a token, from everybody who can reach the console.
                raise Unauthenticated("the server has no tokens yet, and others can reach this console")
        except HeadraceError:
            await client.close()
            raise
        caller = Caller(identity.name, identity.grants, identity.token_id, identity.expires_us)
        session = SignedIn(secrets.token_urlsafe(32), caller, client, token)
        self._make_room(caller.token_id)
        self._by_id[session.id] = session
        return session

    def _make_room(self, token_id: str | None) -> None:
        """Before one more session of a token: end those beyond the limits."""
        counts = Counter(each.caller.token_id for each in self._by_id.values())
        if counts[token_id] >= SESSIONS_OF_TOKEN_MAX:
            self._end_oldest(token_id)
        elif counts.total() >= SESSIONS_MAX:
            self._end_oldest(max(counts, key=lambda each: (counts[each], each == token_id)))

    def _end_oldest(self, token_id: str | None) -> None:
        """End the session of a token that is idle longest, one without an open page if there is one."""
        of_token = [each for each in self._by_id.values() if each.caller.token_id == token_id]
        self.end(min(of_token, key=lambda each: (each.pages > 0, each.used_at)))

    def end_idle(self) -> None:
        """End abandoned sessions: each holds a client with threads."""
        now = time.monotonic()
        for session in [each for each in self._by_id.values() if each.is_idle(now)]:
            self.end(session)

    async def sign_in_without_token(self) -> SignedIn | None:
        """A session without a token, where the broker needs none and only this machine can reach the console."""
        if not self._allow_anonymous:
            return None
        try:
            known = self._anonymous
            if known is None or known.is_over:
                self._anonymous = await self.sign_in("")
            else:
                # Somebody may have created the first token meanwhile.
                await known.client.whoami()
        except AccessDenied:
            if self._anonymous is not None:
                self.end(self._anonymous)
            return None
        return self._anonymous

    async def check(self, session: SignedIn) -> None:
        """Raise Closed if a session has ended, and Unauthenticated if its token has; asks the broker now and then."""
        if session.is_over:
            raise Closed("the session")
        if time.monotonic() - session.checked_at < CHECK_SECONDS:
            return
        session.checked_at = time.monotonic()
        try:
            identity = await session.client.whoami()
        except (Unauthenticated, Closed):
            raise
        except HeadraceError:
            # It does not answer: nothing is known about the token.
            return
        if identity.token_id != session.caller.token_id:
            # The last token was revoked: the server now accepts any text.
            raise Unauthenticated("the token was revoked")

    def end(self, session: SignedIn) -> None:
        """Sign out: calls of pages that are still open are refused."""
        self._by_id.pop(session.id, None)
        if not session.is_over:
            session.is_over = True
            task = asyncio.get_running_loop().create_task(session.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def sign_out(self, session: SignedIn) -> None:
        """End a session, unless it is the one that all without a token share."""
        if session is not self._anonymous:
            self.end(session)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._by_id.values()):
            self.end(session)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def reader_of_all(self) -> SignedIn | None:
        """A session whose token may read the metrics."""
        return next((each for each in self._by_id.values() if each.sees_all), None)

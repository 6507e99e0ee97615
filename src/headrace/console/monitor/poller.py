"""The poller: the one thing in a console that asks the broker by itself.

It asks which servers there are, fetches `/metrics` of each, adds a sample to the history and notifies the open pages
through `sampled`. It waits at least ten times as long as a poll took, so that a store of many topics is not kept busy
by being watched. A poll that fails is told to the pages as `problem`, and the next one is tried after the usual time.

It sends the token of the console. If the console has none and the server needs one, it uses the token of somebody who
is signed in and may read all topics; what is shown to others is filtered by their own rights. Without such a token it
waits until somebody signs in.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

import httpx
from nicegui import Event

from headrace import aio
from headrace.console.monitor.history import History
from headrace.console.monitor.sample import Sample, parse
from headrace.console.sessions import CALL_SECONDS, Session
from headrace.console.settings import ConsoleSettings
from headrace.core.descriptions import ServerDescription
from headrace.core.errors import AccessDenied, HeadraceError

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_REST: Final = 10
_NO_TOKEN: Final = (
    "the console has no token that may read the metrics; start it with HEADRACE_TOKEN, or sign in with a token that "
    "may read all topics"
)


class Poller:
    """Samples of the broker, for all pages."""

    def __init__(self, settings: ConsoleSettings, borrowed: Callable[[], Session | None]) -> None:
        self._settings = settings
        self._borrowed = borrowed
        self._wake = asyncio.Event()
        self._may_use_own = True
        self.history = History(settings.poll_seconds)
        self.sampled = Event[[]]()
        self.problem: str | None = None
        self.servers: list[ServerDescription] = []

    async def run(self) -> None:
        """Poll until cancelled."""
        settings = self._settings
        verify: ssl.SSLContext | bool = True
        if settings.ca is not None:
            verify = ssl.create_default_context(cafile=str(settings.ca))
        own = aio.connect(settings.url, settings.token, root_certificates=settings.ca, timeout_seconds=CALL_SECONDS)
        async with own, httpx.AsyncClient(verify=verify, timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
            while True:
                started = time.monotonic()
                self.problem = await self._poll(own, http)
                self.sampled.emit()
                took = time.monotonic() - started
                self._wake.clear()
                try:
                    async with asyncio.timeout(max(settings.poll_seconds, _REST * took)):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    def wake(self) -> None:
        """Poll now if the last poll failed: somebody signed in whose token may do."""
        if self.problem is not None:
            self._wake.set()

    async def _poll(self, own: aio.AsyncClient, http: httpx.AsyncClient) -> str | None:
        """Take a sample; what kept it from doing so, if anything did."""
        try:
            client, token = self._credentials(own)
            if client is None:
                return _NO_TOKEN
            self.servers = await client.list_servers()
            urls = [server.addresses["http"] + "/metrics" for server in self.servers if "http" in server.addresses]
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            answers = await asyncio.gather(*(http.get(url, headers=headers) for url in urls))
        except AccessDenied:
            # Not tried again by itself: each time would be a line in the audit log.
            self._may_use_own = False
            return _NO_TOKEN
        except HeadraceError as error:
            return str(error)
        except httpx.HTTPError as error:
            return f"a server does not answer to HTTP ({type(error).__name__})"
        refused = [answer for answer in answers if answer.status_code != 200]
        if any(answer.status_code in (401, 403) for answer in refused):
            self._may_use_own = False
            return _NO_TOKEN
        if refused:
            return f"a server answered {refused[0].status_code} to the request for its metrics"
        sample: Sample = await asyncio.to_thread(parse, [answer.text for answer in answers], time.time())
        self.history.add(sample)
        return None

    def _credentials(self, own: aio.AsyncClient) -> tuple[aio.AsyncClient | None, str]:
        """The client and the token to ask with."""
        if self._may_use_own:
            return own, self._settings.token
        session = self._borrowed()
        return (None, "") if session is None else (session.client, session.token)

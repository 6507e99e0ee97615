"""The poller: the one thing in a console that asks the broker by itself.

It asks which servers there are, fetches `/metrics` of each, adds a sample to the history and notifies the open pages
through `sampled`. It waits at least ten times as long as a poll took, so that a store of many topics is not kept busy
by being watched. A failed poll is shown to the pages as `problem`, and the next one follows after the usual time.
If only some of several servers do not answer, they are named in `silent`, and what they said last counts on: without
them the sums would fall, and jump when they are back. Servers judge themselves: of several, each is asked for its
verdict too.

It sends the token of the console. If the console has none and the server needs one, it uses the token of somebody who
is signed in and may read all topics; what is shown to others is filtered by their own rights. Without such a token it
waits until somebody signs in.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
from nicegui import Event

from headrace import aio
from headrace.console.monitor.history import History, Key
from headrace.console.monitor.sample import Sample, parse
from headrace.console.sessions import CALL_SECONDS, CLIENT_ID, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
from headrace.core.errors import AccessDenied, HeadraceError, Unauthenticated
from headrace.core.health.findings import Health
from headrace.core.reports.descriptions import ServerDescription

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_REST: Final = 10
_NO_TOKEN: Final = (
    "the console has no token that may read the metrics; start it with HEADRACE_TOKEN, or sign in with a token that "
    "may read all topics"
)


class Poller:
    """Samples of the broker, for all pages."""

    def __init__(self, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._wake = asyncio.Event()
        self._may_use_own = True
        self.history = History(settings.poll_seconds)
        self.sampled = Event[[]]()
        self.problem: str | None = None
        # How many polls there were, failed ones too.
        self.polls = 0
        self.servers: list[ServerDescription] = []
        self.silent: list[str] = []
        # The verdicts of the servers of a shared store.
        self.verdicts: list[Health] = []
        # What each server said last, by its id.
        self._texts: dict[str, str] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        settings = self._settings
        verify: ssl.SSLContext | bool = True
        if settings.ca is not None:
            verify = ssl.create_default_context(cafile=str(settings.ca))
        own = aio.connect(
            settings.url,
            settings.token,
            root_certificates=settings.ca,
            timeout_seconds=CALL_SECONDS,
            client_id=CLIENT_ID,
        )
        async with own, httpx.AsyncClient(verify=verify, timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
            while True:
                started = time.monotonic()
                self._sessions.end_idle()
                self.problem = await self._poll(own, http)
                self.polls += 1
                self.sampled.emit()
                # A server that does not answer is not kept busy by being asked.
                took = time.monotonic() - started if self.problem is None else 0.0
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(settings.poll_seconds, _REST * took)):
                        await self._wake.wait()
                self._wake.clear()

    def wake(self) -> None:
        """Poll now if the last poll failed: somebody signed in whose token may do."""
        if self.problem is not None:
            self._wake.set()

    @property
    def age_seconds(self) -> float | None:
        """How old the figures are that pages show; None if they have none."""
        return None if self.history.last is None else max(0.0, time.time() - self.history.last.time)

    async def _poll(self, own: aio.AsyncClient, http: httpx.AsyncClient) -> str | None:
        """Take a sample; what kept it from doing so, if anything did."""
        session = None if self._may_use_own else self._sessions.reader_of_all()
        if not self._may_use_own and session is None:
            return _NO_TOKEN
        try:
            texts = await self._fetch(own if session is None else session.client, http, session)
        except AccessDenied:
            # Not tried again: each time would be a line in the audit log.
            if session is None:
                self._may_use_own = False
                self._wake.set()
            else:
                self._sessions.end(session)
            return _NO_TOKEN
        except HeadraceError as error:
            return str(error)
        except httpx.HTTPStatusError as error:
            return f"a server answered {error.response.status_code} to the request for its metrics"
        except httpx.HTTPError as error:
            return f"a server does not answer to HTTP ({type(error).__name__})"
        except msgspec.DecodeError:
            return "a server answered the request for its health with something else"
        except (httpx.InvalidURL, ValueError):
            return "the address of a server is not valid"
        try:
            sample, values = await asyncio.to_thread(self._digest, texts)
        except (KeyError, ValueError):
            # Something else listens at the address, or the server is of another version.
            return "a server answered the request for its metrics with something else"
        self.history.add(sample, values)
        return None

    def _digest(self, texts: list[str]) -> tuple[Sample, dict[Key, float]]:
        """What takes long with thousands of topics; in a thread, so that pages answer meanwhile."""
        sample = parse(texts, time.time())
        return sample, self.history.values_of(sample)

    async def _fetch(self, client: aio.AsyncClient, http: httpx.AsyncClient, session: SignedIn | None) -> list[str]:
        """The metrics of all servers, with the token of the console or of a session."""
        token = self._settings.token if session is None else session.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.servers = await client.list_servers()
        urls = _metrics_urls(self.servers, self._settings.url)
        answers = await asyncio.gather(*(_get(http, f"{url}/metrics", headers) for url in urls.values()))
        self.verdicts = await _verdicts(http, urls, headers)
        failures = [answer for answer in answers if isinstance(answer, httpx.HTTPError)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        texts = {
            server: self._texts.get(server) if isinstance(answer, httpx.HTTPError) else answer
            for server, answer in zip(urls, answers, strict=True)
        }
        self._texts = {server: text for server, text in texts.items() if text is not None}
        self.silent = [
            url for url, answer in zip(urls.values(), answers, strict=True) if isinstance(answer, httpx.HTTPError)
        ]
        return list(self._texts.values())


async def _get(http: httpx.AsyncClient, url: str, headers: dict[str, str]) -> str | httpx.HTTPError:
    """What one server answers, or why it does not; raises Unauthenticated."""
    try:
        answer = await http.get(url, headers=headers)
        if answer.status_code in (401, 403):
            raise Unauthenticated("the token may not read the metrics")
        answer.raise_for_status()
    except httpx.HTTPError as error:
        return error
    return answer.text


async def _verdicts(http: httpx.AsyncClient, urls: Mapping[str, str], headers: dict[str, str]) -> list[Health]:
    """The verdicts of several servers; of one alone each page asks for it."""
    if len(urls) == 1:
        return []
    answers = await asyncio.gather(*(_get(http, f"{url}/v1/health", headers) for url in urls.values()))
    return [msgspec.json.decode(answer, type=Health) for answer in answers if isinstance(answer, str)]


def _metrics_urls(servers: list[ServerDescription], url: str) -> dict[str, str]:
    """Where each server answers to HTTP; one alone at the host where the console reaches it, whatever its own name."""
    found = {server.id: urlsplit(server.addresses["http"]) for server in servers if "http" in server.addresses}
    if len(found) == 1:
        ((server, only),) = found.items()
        host = urlsplit(url.split(",")[0].strip()).hostname or only.hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return {server: f"{only.scheme}://{shown}:{only.port}"}
    return {server: f"{each.scheme}://{each.netloc}" for server, each in found.items()}

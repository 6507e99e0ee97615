"""An open page: who looks at it, what it may use while it is open, and how its errors are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType

from nicegui import ui
from starlette.datastructures import QueryParams

from headrace import aio
from headrace.console.monitor.history import History
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import BROWSER_SECONDS, PAGE_SECONDS, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
from headrace.console.sign_in import PATH
from headrace.console.view import text
from headrace.core.errors import Closed, HeadraceError, Unauthenticated, Unreachable
from headrace.core.health.findings import Health, merged, visible
from headrace.core.health.rules import silent
from headrace.core.text import counted, duration_shown


@dataclass
class Visit:
    """An open page: who looks at it, with which query, its banner, how old its figures are, and the badge.

    addresses: by tab, the address that shows what the page shows now. patience: how long the page may take.
    """

    session: SignedIn
    sessions: Sessions
    poller: Poller
    settings: ConsoleSettings
    query: QueryParams
    banner: ui.label
    age: ui.label
    badge: ui.badge
    addresses: dict[str, str] = field(default_factory=dict)
    patience: asyncio.Timeout | None = None
    _is_asking: bool = False

    @property
    def client(self) -> aio.AsyncClient:
        """The client with the visitor's token."""
        return self.session.client

    @property
    def history(self) -> History:
        """The history of samples."""
        return self.poller.history

    async def connected(self) -> None:
        """Wait for the browser, before what needs it; a slow one takes none of the time that the server has."""
        client, now, patience = ui.context.client, asyncio.get_running_loop().time, self.patience
        if client.has_socket_connection:
            return
        assert patience is not None, "the page is being drawn"
        patience.reschedule(now() + BROWSER_SECONDS)
        await client.connected()
        patience.reschedule(now() + PAGE_SECONDS)

    def on_sample(self, refresh: Callable[[], object]) -> None:
        """Call this after every poll, while the page is open and its session lasts."""

        async def refresh_if_signed_in() -> None:
            with self.reporting():
                await self.sessions.check(self.session)
                refreshed = refresh()
                if isinstance(refreshed, Awaitable):
                    await refreshed

        self.poller.sampled.subscribe(refresh_if_signed_in)

    async def health(self) -> Health:
        """What the servers say needs attention, of what the visitor may see; pages of a session share an answer."""
        known = self.session.health
        if known is not None and known[0] == self.poller.polls:
            return known[1]
        polls, health = self.poller.polls, await self._judged()
        self.session.health = polls, health
        return health

    async def _judged(self) -> Health:
        own, session, poller = await self.client.describe_health(), self.session, self.poller
        others = [
            Health.of(each.server, each.judged_us, visible(each.findings, session.may_read, own.covers_store, ""))
            for each in poller.verdicts
            if each.server != own.server
        ]
        silences = [silent(url, "its HTTP port gives no metrics") for url in poller.silent] if own.covers_store else []
        return merged(own, others).with_more(silences)

    async def show_attention(self) -> None:
        """How much needs attention, as a badge on every page."""
        if self._is_asking:
            return
        self._is_asking = True
        try:
            self._show_badge(await self.health())
        except HeadraceError as error:
            if isinstance(error, Unauthenticated | Closed):
                raise
            self._show_badge(None)
        finally:
            self._is_asking = False

    def show_known_attention(self) -> None:
        """The same without asking, as a page is drawn."""
        if self.session.health is not None:
            self._show_badge(self.session.health[1])

    def _show_badge(self, health: Health | None) -> None:
        number = 0 if health is None else len(health.findings) + health.omitted
        is_known = health is not None and health.state != "unknown"
        self.badge.set_text(f"{number:,}" if number else "?")
        self.badge.set_visibility(health is None or health.state != "fine")
        self.badge.classes(**{"remove" if is_known else "add": "hr-unknown"})
        label = f"needs attention: {counted(number, 'finding')}" if number else "not known what needs attention"
        self.badge.props(f'aria-label="{label}"')

    def show_age(self) -> None:
        """Figures without fresh samples are grey, with their age."""
        problem, seconds = self.poller.problem, self.poller.age_seconds
        if problem is not None:
            old = "There are no figures" if seconds is None else f"Grey figures are {duration_shown(seconds)} old"
            self.age.set_text(text.visible(f"No new samples: {problem}. {old}."))
        elif self.poller.silent:
            rest = "What it did last counts until it is back, or is no longer listed."
            self.age.set_text(text.visible(f"No answer from {', '.join(self.poller.silent)}. {rest}"))
        self.age.set_visibility(problem is not None or bool(self.poller.silent))
        ui.query("body").classes(**{"remove" if problem is None else "add": "hr-stale"})

    def say(self, problem: str | None) -> None:
        """Show a problem at the top of the page, or that there is none."""
        self.banner.set_text(text.visible(problem or ""))
        self.banner.set_visibility(problem is not None)

    def reporting(self, *, in_banner: bool = False) -> Reporting:
        """Tell the visitor about errors of calls: in a note, or for what a page repeats, in its banner."""
        return Reporting(self, in_banner)


@dataclass
class Reporting:
    """Catches what the broker refuses or cannot do, and tells the visitor."""

    visit: Visit
    in_banner: bool

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None:
            if self.in_banner:
                self.visit.say(None)
            return False
        if isinstance(error, Unauthenticated | Closed):
            self.visit.sessions.end(self.visit.session)
            ui.notify(f"Signed out: {text.visible(str(error))}", type="warning")
            ui.navigate.to(PATH)
        elif isinstance(error, Unreachable):
            self.visit.say("The server does not answer. This page continues by itself when it is back.")
        elif isinstance(error, HeadraceError) and self.in_banner:
            self.visit.say(str(error))
        elif isinstance(error, HeadraceError):
            ui.notify(text.visible(str(error)), type="negative", multi_line=True, close_button=True, timeout=10_000)
        else:
            return False
        return True

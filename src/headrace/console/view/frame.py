"""The frame of all pages: header, navigation, search, help; and what a page may use while it is open.

`Frame.page` registers a page: it admits the visitor, draws the frame, and calls the page with a `Visit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from fastapi import Request, Response
from nicegui import Client, ui
from starlette.datastructures import QueryParams

from headrace import aio
from headrace.console.monitor.history import History
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import PAGE_SECONDS, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
from headrace.console.sign_in import PATH, SignIn
from headrace.console.view import text
from headrace.console.view.parts import tagged
from headrace.core.errors import Closed, HeadraceError, Unauthenticated, Unreachable
from headrace.core.health.findings import Health, merged, visible
from headrace.core.health.rules import silent
from headrace.core.text import duration_shown

THEME_COOKIE: Final = "headrace_theme"
# Path, label and icon; the first is the page that `/` shows.
_NAVIGATION: Final = (
    ("/", "Overview", "dashboard"),
    ("/topics", "Topics", "list_alt"),
    ("/groups", "Groups", "groups"),
    ("/pipelines", "Pipelines", "account_tree"),
    ("/access", "Access", "key"),
    ("/audit", "Audit", "history"),
    ("/server", "Server", "dns"),
)
_KEYS: Final = (
    ("/", "Search"),
    ("?", "Show this help"),
    ("Esc", "Close a dialog"),
    ("Tab", "Next control"),
)
# Longer than a page is drawn, on any machine: NiceGUI then answers with an internal error.
_RESPONSE_SECONDS: Final = 5 * PAGE_SECONDS
_HEAD: Final = (
    '<link rel="stylesheet" href="/static/console.css?v={version}">'
    '<script src="/static/console.js?v={version}" defer></script>'
)


@dataclass
class Visit:
    """An open page: who looks at it, with which query, its banner, and how old its figures are."""

    session: SignedIn
    sessions: Sessions
    poller: Poller
    settings: ConsoleSettings
    query: QueryParams
    banner: ui.label
    age: ui.label

    @property
    def client(self) -> aio.AsyncClient:
        """The client with the visitor's token."""
        return self.session.client

    @property
    def history(self) -> History:
        """The history of samples."""
        return self.poller.history

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
        """What the servers say needs attention, of what the visitor may see."""
        own, session, poller = await self.client.describe_health(), self.session, self.poller
        others = [
            Health.of(each.server, each.judged_us, visible(each.findings, session.may_read, own.covers_store, ""))
            for each in poller.verdicts
            if each.server != own.server
        ]
        silences = [silent(url, "its HTTP port gives no metrics") for url in poller.silent] if own.covers_store else []
        return merged(own, others).with_more(silences)

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


Build = Callable[[Visit], Awaitable[None] | None]


class Frame:
    """Registers pages."""

    def __init__(
        self, settings: ConsoleSettings, sign_in: SignIn, sessions: Sessions, poller: Poller, version: str
    ) -> None:
        self._settings = settings
        self._sign_in = sign_in
        self._sessions = sessions
        self._poller = poller
        self._version = version
        ui.add_head_html(_HEAD.format(version=version), shared=True)

    def page(self, path: str, title: str) -> Callable[[Build], Build]:
        """Register a page."""

        def register(build: Build) -> Build:
            @ui.page(path, title=f"{title} · Headrace", response_timeout=_RESPONSE_SECONDS)
            async def shown(request: Request, client: Client) -> Response | None:
                admitted = await self._sign_in.admit(request)
                if isinstance(admitted, Response):
                    client.delete()
                    return admitted
                count_page(admitted, client)
                banner, age = self._draw(path, admitted, request)
                visit = Visit(admitted, self._sessions, self._poller, self._settings, request.query_params, banner, age)
                # A page that never asks the server again is closed too when its token ends.
                visit.on_sample(visit.show_age)
                visit.show_age()
                built = build(visit)
                try:
                    async with asyncio.timeout(PAGE_SECONDS):
                        if built is not None:
                            await built
                except TimeoutError:
                    visit.say("The server does not answer. Load this page again when it is back.")
                return None

            return build

        return register

    def _draw(self, path: str, session: SignedIn, request: Request) -> tuple[ui.label, ui.label]:
        ui.colors(primary="#0e6f8c", secondary="#5c6f78", accent="#0e6f8c", positive="#1b7f4d", negative="#b3261e")
        theme = ui.dark_mode({"dark": True, "light": False}.get(request.cookies.get(THEME_COOKIE, "")))
        with ui.header().classes("hr-header"):
            drawer_button = ui.button(icon="menu").props("flat dense round color=secondary aria-label=Navigation")
            with ui.link(target="/").classes("hr-brand"):
                ui.element("img").props('src=/static/mark.svg width=26 height=26 alt=""')
                tagged("span", "Headrace")
            ui.space()
            self._search(session)
            help_dialog = self._help()
            ui.button(icon="help_outline", on_click=help_dialog.open).props(
                'flat dense round color=secondary aria-label="Keyboard help"'
            ).classes("hr-help")
            self._account(session, theme)
        # Without a value NiceGUI would ask the browser for it, and complain if that is slow.
        with (
            ui.left_drawer(value=False, bordered=False)
            .props("width=200 breakpoint=900 show-if-above")
            .classes("hr-drawer") as drawer
        ):
            for target, label, icon in _NAVIGATION:
                with ui.link(target=target).classes("hr-nav" + (" hr-here" if _is_here(path, target) else "")):
                    ui.icon(icon)
                    ui.label(label)
            ui.space()
            ui.label(f"Headrace {self._version}").classes("hr-muted hr-small q-px-md")
        drawer_button.on_click(lambda: drawer.run_method("toggle"))
        banner, age = (ui.label().classes("hr-banner").props(f"role={role}") for role in ("alert", "status"))
        banner.set_visibility(False)
        return banner, age

    def _search(self, session: SignedIn) -> None:
        async def go() -> None:
            wanted = (field.value or "").strip()
            if not wanted:
                return
            try:
                names = await session.client.list_topics()
            except HeadraceError:
                names = []
            exact = next((name for name in names if name.lower() == wanted.lower()), None)
            ui.navigate.to(text.topic_page(exact) if exact else text.page("/topics", search=wanted))

        field = (
            ui.input(placeholder="Search topics")
            .props("dense outlined clearable aria-label=Search")
            .classes("hr-search")
        )
        with field.add_slot("prepend"):
            ui.icon("search").classes("hr-muted")
        with field.add_slot("append"):
            tagged("kbd", "/").classes("hr-wide")
        field.on("keydown.enter", go)

    def _help(self) -> ui.dialog:
        with ui.dialog() as dialog, ui.card().classes("hr-dialog"):
            ui.label("Keyboard").classes("hr-title")
            with ui.element("div").classes("hr-facts"):
                for key, meaning in _KEYS:
                    with ui.element("span"):
                        tagged("kbd", key)
                    ui.label(meaning)
            ui.button("Close", on_click=dialog.close).props("flat")
        return dialog

    def _account(self, session: SignedIn, theme: ui.dark_mode) -> None:
        def set_theme(name: str, value: bool | None) -> None:
            theme.set_value(value)
            ui.run_javascript(f"document.cookie = '{THEME_COOKIE}={name}; path=/; max-age=31536000; SameSite=Strict'")

        with ui.button(icon="account_circle").props('flat dense round color=secondary aria-label="Account"'), ui.menu():
            with ui.element("div").classes("q-pa-md"):
                ui.label(text.visible(session.caller.name)).classes("hr-panel-title")
                identity = (
                    "This server needs no token"
                    if session.caller.token_id is None
                    else f"Token {session.caller.token_id}"
                )
                ui.label(identity).classes("hr-muted hr-small")
            ui.separator()
            ui.menu_item("Light", lambda: set_theme("light", False))
            ui.menu_item("Dark", lambda: set_theme("dark", True))
            ui.menu_item("As the system", lambda: set_theme("auto", None))
            ui.separator()
            # A form, so that the cookie is deleted by an answer.
            with ui.element("form").props("method=post action=/sign-out").classes("q-px-sm q-py-xs"):
                ui.button("Use another token" if session.caller.token_id is None else "Sign out").props(
                    "flat dense type=submit"
                )


def count_page(session: SignedIn, client: Client) -> None:
    """Count a page of a session for as long as it is open."""
    session.pages += 1

    def forget() -> None:
        session.pages -= 1

    client.on_delete(forget)


def _is_here(path: str, target: str) -> bool:
    return path == target or (target == "/topics" and path == "/topic") or (target == "/groups" and path == "/group")

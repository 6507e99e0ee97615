"""The frame of all pages: header, navigation, search, help.

`Frame.page` registers a page: it admits the visitor, draws the frame, and calls the page with a `Visit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import Request, Response
from nicegui import Client, ui

from headrace.console.lookup import NAVIGATION, find
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import PAGE_SECONDS, Sessions, SignedIn
from headrace.console.settings import ConsoleSettings
from headrace.console.sign_in import SignIn
from headrace.console.view import text
from headrace.console.view.parts import tagged
from headrace.console.view.visit import Visit

THEME_COOKIE: Final = "headrace_theme"
_KEYS: Final = (
    ("/", "Search this page, or everything"),
    ("g  t", "Go to the topics; o, g, p, a and s go to overview, groups, pipelines, access and server"),
    ("j  k", "Next and previous row, or message"),
    ("Enter", "Open the row"),
    ("Esc", "Close a dialog, leave a field or a row"),
    ("?", "Show this help"),
    ("Tab", "Next control"),
)
# Longer than a page is drawn, on any machine: NiceGUI then answers with an internal error.
_RESPONSE_SECONDS: Final = 5 * PAGE_SECONDS
_HEAD: Final = (
    '<link rel="stylesheet" href="/static/console.css?v={version}">'
    '<script src="/static/console.js?v={version}" defer></script>'
)


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
                visit = self._draw(path, admitted, request)
                # A page that never asks the server again is closed too when its token ends.
                visit.on_sample(visit.show_age)
                visit.on_sample(visit.show_attention)
                visit.show_age()
                visit.show_known_attention()
                built = build(visit)
                try:
                    async with asyncio.timeout(PAGE_SECONDS) as visit.patience:
                        if built is not None:
                            await built
                except TimeoutError:
                    visit.say("The server does not answer. Load this page again when it is back.")
                return None

            return build

        return register

    def _draw(self, path: str, session: SignedIn, request: Request) -> Visit:
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
            for target, label, icon in NAVIGATION:
                with ui.link(target=target).classes("hr-nav" + (" hr-here" if _is_here(path, target) else "")):
                    ui.icon(icon)
                    ui.label(label)
                    if target == "/":
                        badge = ui.badge("", color=None).classes("hr-badge").props("role=img")
                        badge.set_visibility(False)
            ui.space()
            ui.label(f"Headrace {self._version}").classes("hr-muted hr-small q-px-md")
        drawer_button.on_click(lambda: drawer.run_method("toggle"))
        banner, age = (ui.label().classes("hr-banner").props(f"role={role}") for role in ("alert", "status"))
        banner.set_visibility(False)
        return Visit(session, self._sessions, self._poller, self._settings, request.query_params, banner, age, badge)

    def _search(self, session: SignedIn) -> None:
        async def go() -> None:
            wanted = (field.value or "").strip()
            if wanted:
                found = await find(session, self._poller.history, wanted)
                ui.navigate.to(found.only or text.page("/search", wanted=wanted))

        field = (
            ui.input(placeholder="Topics, groups, pages")
            .props("dense outlined clearable aria-label=Search maxlength=1000")
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

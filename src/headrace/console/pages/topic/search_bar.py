"""The search of a topic: text or an expression, over all of its messages, with progress and a way to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import background_tasks, ui

from headrace.client.message import Message
from headrace.client.where.expression import Anywhere, Condition, parse
from headrace.console.messages.address import SearchKind
from headrace.console.messages.search import FOUND_MAX, Search
from headrace.console.messages.typed import TypedValues
from headrace.console.view import text
from headrace.console.view.visit import Visit
from headrace.core.errors import HeadraceError

_KINDS = {"text": "Text", "expression": "Expression"}
_HINTS = {
    "text": "Text in a key, attribute or value",
    "expression": 'value.amount > 100 and attributes.kind == "sale"',
}
_REFRESH_SECONDS = 0.3

Show = Callable[[list[Message]], None]


class SearchBar:
    """Field, button and progress; hands what was found to the list, and says when the search is closed."""

    def __init__(
        self, visit: Visit, topic: str, typed: TypedValues, show: Show, close: Callable[[], Awaitable[object]]
    ) -> None:
        self._visit = visit
        self._topic = topic
        self._typed = typed
        self._show = show
        self._close = close
        self._search: Search | None = None
        self._shown = -1
        self._wanted: tuple[str, SearchKind] = "", "text"
        with ui.element("div").classes("hr-bar"):
            self._kind = ui.select(_KINDS, value="text", on_change=self._change_hint)
            self._kind.props('dense outlined options-dense aria-label="Kind of search"').style("min-width: 130px")
            self._field = ui.input(placeholder=_HINTS["text"]).classes("hr-grow hr-page-search hr-mono")
            self._field.props('dense outlined clearable aria-label="Search all messages" maxlength=1000')
            self._field.on("keydown.enter", self.start)
            self._field.on("clear", self.clear)
            ui.button("Search", icon="search", on_click=self.start).props("unelevated")
        with ui.element("div").classes("hr-bar") as self._progress:
            self._bar = ui.linear_progress(0.0, show_value=False).props("instant-feedback rounded size=8px")
            self._bar.classes("hr-grow").style("min-width: 160px")
            self._told = ui.label().props("role=status")
            self._stop = ui.button("Stop", icon="stop", on_click=self._stop_search).props("flat dense color=negative")
            self._leave = ui.button("Close search", icon="close", on_click=self.clear).props(
                "flat dense color=secondary"
            )
        self._progress.set_visibility(False)
        self._timer = ui.timer(_REFRESH_SECONDS, self._refresh, active=False)
        # Once for all searches: a page that kept each of them would keep what they found.
        self._field.client.on_delete(self._stop_search)

    @property
    def wanted(self) -> tuple[str, SearchKind]:
        """What is searched for, and how; empty if nothing is."""
        return self._wanted if self._search is not None else ("", "text")

    async def start_with(self, wanted: str, kind: SearchKind) -> None:
        """Search for what an address asks for."""
        self._kind.set_value(kind)
        self._field.set_value(wanted)
        await self.start()

    def _change_hint(self) -> None:
        self._field.props(f"placeholder='{_HINTS[self._kind.value]}'")

    async def start(self) -> None:
        """Search for what is in the field."""
        wanted = (self._field.value or "").strip()
        if not wanted:
            return
        self._stop_search()
        with self._visit.reporting():
            condition: Condition = Anywhere(wanted) if self._kind.value == "text" else parse(wanted)
            ranges = await self._visit.client.offsets(self._topic)
            self._wanted = wanted, self._kind.value
            self._search, self._shown = Search(self._topic, condition, ranges, self._typed), -1
            self._progress.set_visibility(True)
            self._timer.activate()
            self._show([])
            background_tasks.create(self._run(self._search), name="search a topic")

    async def _run(self, search: Search) -> None:
        try:
            await search.run(self._visit.client)
        except HeadraceError as error:
            with self._field.client:
                self._visit.say(f"The search ended early: {error}")

    def _stop_search(self) -> None:
        if self._search is not None:
            self._search.stop()

    async def clear(self) -> None:
        """End the search, and show the newest messages again."""
        if self._search is None:
            return
        self._stop_search()
        self._search = None
        self._timer.deactivate()
        self._progress.set_visibility(False)
        await self._close()

    def _refresh(self) -> None:
        search = self._search
        if search is None:
            return
        self._bar.set_value(search.scanned / search.total if search.total else 1.0)
        self._told.set_text(_told(search))
        self._stop.set_visibility(not search.is_over)
        if len(search.found) != self._shown:
            self._shown = len(search.found)
            self._show(search.found)
        if search.is_over:
            self._timer.deactivate()


def _told(search: Search) -> str:
    progress = f"{search.scanned:,} of {search.total:,} searched at {text.short_count(search.rate)}/s"
    found = f"{len(search.found):,} found"
    if search.is_full:
        return f"{progress}, the first {FOUND_MAX:,} shown"
    return f"{progress}, {found}" + (", stopped" if search.is_stopped else "")

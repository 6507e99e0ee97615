"""Audit: the last refusals and changes that the server recorded."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LEVEL, MONO, TIME, Column, PagedTable, PageOrder, Row
from headrace.console.view.visit import Visit
from headrace.core.limits import AUDIT_KEPT

_COLUMNS = (
    Column("time", "When", slot=TIME),
    Column("event", "Event", slot=LEVEL),
    Column("operation", "Operation", slot=MONO),
    Column("principal", "Who", classes="hr-name"),
    Column("address", "From", slot=MONO, is_wide=True),
    Column("details", "Details", classes="hr-name", is_wide=True),
)
_SHOWN = ("time_us", "event", "operation", "principal", "address")


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/audit", "Audit")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    with ui.element("div").classes("hr-bar"):
        parts.title("Audit")
        ui.space()
        search = ui.input(placeholder="Filter").classes("hr-search hr-page-search")
        search.props("dense outlined clearable debounce=200 aria-label=Filter")
    if not visit.session.may_administer:
        with (
            parts.panel(),
            parts.empty("Your token may not read the audit log", "That needs full access."),
        ):
            pass
        return
    advice = "Refusals and changes of topics, groups and tokens at this server since it started. For all of it, set"
    with ui.element("div").classes("hr-muted hr-small"):
        ui.label(f"{advice} audit_log to a file.")
    page = _Audit(visit)
    search.on_value_change(lambda event: page.filter(event.value or ""))
    await page.refresh()
    visit.on_sample(page.refresh)


class _Audit:
    """The table of entries."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._wanted = ""
        self._entries: list[Row] = []
        self._table = PagedTable(_COLUMNS, self._load)
        self._nothing = ui.label("Nothing was refused or changed yet.").classes("hr-muted")

    async def filter(self, wanted: str) -> None:
        """Show only entries that contain a text."""
        self._wanted = wanted.strip().casefold()
        await self._table.refresh(first_page=True)

    async def refresh(self) -> None:
        """Read the log again."""
        with self._visit.reporting(in_banner=True):
            self._entries = [_row(entry) for entry in await self._visit.client.list_audit(AUDIT_KEPT)]
            await self._table.refresh()
            self._table.table.set_visibility(bool(self._entries))
            self._nothing.set_visibility(not self._entries)

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        found = [row for row in self._entries if self._wanted in " ".join(map(str, row.values())).casefold()]
        return found[order.first : order.first + order.count], len(found)


def _row(entry: dict[str, Any]) -> Row:
    details = ", ".join(f"{name} {value}" for name, value in entry.items() if name not in _SHOWN)
    is_refused = entry.get("event") == "refused"
    return {
        "key": f"{entry['time_us']} {details}",
        "time": text.iso(entry["time_us"]),
        "event": str(entry.get("event")),
        "level": "hr-bad" if is_refused else "hr-good",
        "operation": text.visible(str(entry.get("operation", ""))),
        "principal": text.visible(str(entry.get("principal", ""))),
        "address": text.visible(str(entry.get("address", ""))),
        "details": text.visible(details),
    }

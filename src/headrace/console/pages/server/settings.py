"""The settings that a server runs with, read only; of several servers, each is asked for its own."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from headrace import aio
from headrace.console.sessions import CALL_SECONDS
from headrace.console.view import parts, text
from headrace.console.view.tables import LEVEL, MONO, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.reports.descriptions import ServerDescription
from headrace.core.reports.server_settings import SettingDescription

_COLUMNS = (
    Column("name", "Setting", is_sortable=True, slot=MONO, classes="hr-name"),
    Column("value", "Value", slot=MONO, classes="hr-name"),
    Column("default", "Default", slot=MONO, classes="hr-name", is_wide=True),
    Column("origin", "Set by", is_sortable=True, slot=LEVEL, classes="hr-name", is_wide=True),
)


class SettingsPanel:
    """The table of settings, with a filter."""

    def __init__(self, visit: Visit, servers: list[ServerDescription]) -> None:
        self._visit = visit
        self._servers = {server.id: server for server in servers}
        self._settings: list[SettingDescription] = []
        with parts.panel():
            with ui.element("div").classes("hr-bar"):
                ui.label("Settings").classes("hr-panel-title")
                ui.space()
                self._server = ui.select(
                    {server.id: server.addresses.get("http", server.id) for server in servers},
                    value=servers[0].id if servers else None,
                    on_change=self.refresh,
                ).props("dense outlined options-dense aria-label=Server")
                self._server.set_visibility(len(servers) > 1)
                self._changed = ui.switch("Only what is not the default", on_change=self._filter).props("dense")
                self._wanted = ui.input(placeholder="Filter", on_change=self._filter).classes("hr-search")
                self._wanted.props('dense outlined clearable debounce=200 aria-label="Filter settings"')
            note = "As the server runs with them, without passwords. Change them where they are set, and restart."
            ui.label(note).classes("hr-muted hr-small")
            self._table = PagedTable(_COLUMNS, self._load, sort="name", per_page=25)

    async def refresh(self) -> None:
        """Ask the chosen server."""
        with self._visit.reporting():
            self._settings = await self._ask()
            await self._table.refresh()

    async def _ask(self) -> list[SettingDescription]:
        chosen = self._servers.get(self._server.value)
        if len(self._servers) < 2 or chosen is None or "flight" not in chosen.addresses:
            return (await self._visit.client.describe_settings()).settings
        # With the token of the visitor, at the address that the server gave when it started.
        async with aio.connect(
            chosen.addresses["flight"],
            self._visit.session.token,
            root_certificates=self._visit.settings.ca,
            timeout_seconds=CALL_SECONDS,
        ) as client:
            return (await client.describe_settings()).settings

    async def _filter(self) -> None:
        await self._table.refresh(first_page=True)

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        wanted = (self._wanted.value or "").strip().casefold()
        rows = [
            _row(each)
            for each in self._settings
            if wanted in f"{each.name} {each.value}".casefold()
            and (not self._changed.value or each.origin != "default")
        ]
        return cut(rows, order, lambda row: row[order.sort if order.sort == "origin" else "name"]), len(rows)


def _row(setting: SettingDescription) -> Row:
    return {
        "key": setting.name,
        "name": setting.name,
        "value": text.visible(_shown(setting.value)),
        "default": text.visible(_shown(setting.default)),
        "origin": text.visible(setting.origin),
        "level": "hr-muted" if setting.origin == "default" else "",
    }


def _shown(value: Any) -> str:
    if value is None or value in ("", [], ()):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)

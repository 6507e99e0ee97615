"""Who is connected to the server that the console asks: what clients say of themselves, what they read and write."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.tables import MONO, TIME, Column, Row, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.clients import RECENT_SECONDS, ClientDescription
from headrace.core.text import counted

_COLUMNS = (
    Column("client", "Client", classes="hr-name"),
    Column("process", "Process", slot=MONO, is_wide=True, classes="hr-name"),
    Column("library", "Library", is_wide=True),
    Column("protocol", "Protocol"),
    Column("token", "Token", classes="hr-name"),
    Column("address", "Address", slot=MONO, is_wide=True),
    Column("reads", "Reads", classes="hr-name"),
    Column("writes", "Writes", classes="hr-name"),
    Column("seen", "Last call", slot=TIME),
)
_ROWS_MAX = 200


class ClientsPanel:
    """The clients that called in the last minute, of those that the visitor may know."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with parts.panel("Clients"):
            self._table = ShortTable(_COLUMNS)
            self._note = ui.label().classes("hr-muted hr-small")

    async def refresh(self) -> None:
        """Ask for them again."""
        with self._visit.reporting(in_banner=True):
            found = recent(await self._visit.client.list_clients())
            self._table.show([_row(number, each) for number, each in enumerate(found[:_ROWS_MAX])])
            more = f", {counted(len(found) - _ROWS_MAX, 'client')} more" if len(found) > _ROWS_MAX else ""
            self._note.set_text(f"Of this server, in the last minute{more}. For all servers: headrace client list")


def recent(clients: Sequence[ClientDescription]) -> list[ClientDescription]:
    """Those that called in the last minute: the newest call is the one that asks."""
    since_us = max((each.seen_us for each in clients), default=0) - RECENT_SECONDS * MICROSECONDS
    return [each for each in clients if each.seen_us >= since_us]


def _row(number: int, client: ClientDescription) -> Row:
    said = client.identity
    return {
        "key": number,
        "client": text.visible(said.client_id) or "–",
        "process": text.visible(said.place) or "–",
        "library": text.visible(f"{said.library} {said.version}".strip()) or "–",
        "protocol": client.protocol,
        "token": text.visible(client.principal),
        "address": text.visible(client.address),
        "reads": text.visible(", ".join(sorted({f"{each.topic} as {each.group}" for each in client.members}))),
        "writes": text.visible(", ".join(sorted({each.topic for each in client.producers}))),
        "seen": text.iso(client.seen_us),
    }

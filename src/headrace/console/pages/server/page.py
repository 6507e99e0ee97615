"""Server: the servers of the store, the disk, clients, a check of the store, settings, and what maintenance did."""

from __future__ import annotations

from nicegui import ui

from headrace.console.pages.server.check import StoreCheckPanel
from headrace.console.pages.server.clients import ClientsPanel
from headrace.console.pages.server.settings import SettingsPanel
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import MONO, TIME, Column, ShortTable
from headrace.console.view.visit import Visit
from headrace.wire.metrics import METRICS

_SERVERS = (
    Column("id", "Id", slot=MONO, is_wide=True),
    Column("version", "Version"),
    Column("http", "HTTP", slot=MONO),
    Column("flight", "Flight", slot=MONO, is_wide=True),
    Column("started", "Started", slot=TIME, is_wide=True),
    Column("heartbeat", "Last heartbeat", slot=TIME, is_wide=True),
)
_COUNTERS = (
    Column("name", "What", classes="hr-name"),
    Column("value", "Since start", is_number=True),
)


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/server", "Server")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    parts.title("Server")
    page = _Server(visit)
    await page.refresh()
    visit.on_sample(page.refresh)
    clients = ClientsPanel(visit)
    await clients.refresh()
    visit.on_sample(clients.refresh)
    if visit.session.may_administer:
        await _show_for_administrators(visit)
    else:
        with parts.panel(), parts.empty("Your token may not see checks and settings", "That needs full access."):
            pass
    if visit.session.sees_all:
        counters = _Counters(visit)
        counters.refresh()
        visit.on_sample(counters.refresh)


async def _show_for_administrators(visit: Visit) -> None:
    check = StoreCheckPanel(visit)
    with visit.reporting(in_banner=True):
        await check.refresh()
        settings = SettingsPanel(visit, await visit.client.list_servers())
        await settings.refresh()
    visit.on_sample(check.refresh)


class _Server:
    """The parts of the page that change."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with ui.element("div").classes("hr-cards hr-sampled"):
            self._count, self._free = parts.Card("Servers"), parts.Card("Disk free")
            self._failing, self._tokens = parts.Card("Failing topics"), parts.Card("Valid tokens")
        with parts.panel("Servers of this store"):
            self._servers = ShortTable(_SERVERS)

    async def refresh(self) -> None:
        """Show the newest sample."""
        with self._visit.reporting(in_banner=True):
            servers = await self._visit.client.list_servers()
            self._count.set(text.count(len(servers)), "share this store" if len(servers) > 1 else "")
            self._servers.show(
                [
                    {
                        "key": server.id,
                        "id": server.id,
                        "version": server.version,
                        "http": server.addresses.get("http", "–"),
                        "flight": server.addresses.get("flight", "–"),
                        "started": text.iso(server.started_us),
                        "heartbeat": text.iso(server.heartbeat_us),
                    }
                    for server in servers
                ]
            )
        sample = self._visit.history.last
        if sample is None or not self._visit.session.sees_all:
            return
        others = sample.others
        free, size = others.get("headrace_disk_free_bytes"), others.get("headrace_disk_size_bytes")
        self._free.set(text.size(free), f"of {text.size(size)}" if size else "PostgreSQL has its own disk")
        self._failing.set(text.count(others.get("headrace_topics_failing", 0.0)))
        expiring = others.get("headrace_tokens_expiring", 0.0)
        self._tokens.set(
            text.count(others.get("headrace_tokens", 0.0)), f"{expiring:.0f} expire soon" if expiring else ""
        )


class _Counters:
    """What maintenance did since the server started."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with parts.panel("Maintenance"):
            self._table = ShortTable(_COUNTERS)

    def refresh(self) -> None:
        """Show the newest sample."""
        sample = self._visit.history.last
        counted = {
            name: value
            for name, value in (sample.others if sample is not None else {}).items()
            if name.endswith("_total") and name in METRICS and "_server_" not in name
        }
        self._table.show(
            [
                {"key": name, "name": METRICS[name].help, "value": text.count(value)}
                for name, value in sorted(counted.items())
            ]
        )

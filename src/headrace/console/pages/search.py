"""What the search of the header found: pages, topics and groups."""

from __future__ import annotations

from nicegui import ui

from headrace.console.lookup import find
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LINK, Column, ShortTable
from headrace.console.view.visit import Visit

_COLUMNS = (
    Column("name", "Name", slot=LINK, classes="hr-name"),
    Column("kind", "Kind"),
    Column("of", "Of", classes="hr-name"),
)


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/search", "Search")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    wanted = visit.query.get("wanted", "")[:1_000]
    parts.title(f"Search: {wanted}")
    found = await find(visit.session, visit.history, wanted)
    if not found.hits:
        with (
            parts.panel(),
            parts.empty("Nothing has this in its name", "Messages are searched on the page of their topic."),
        ):
            ui.link("All topics", "/topics")
        return
    rows = [
        {
            "key": f"{hit.kind}\0{hit.of}\0{hit.name}",
            "name": text.visible(hit.name),
            "href": hit.target,
            "kind": hit.kind,
            "of": text.visible(hit.of),
        }
        for hit in found.hits
    ]
    ShortTable(_COLUMNS).show(rows)
    if found.more:
        ui.label(f"And {found.more:,} more: type more of the name.").classes("hr-muted")

"""Topics: all of them, with rate and worst lag; create and delete."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from headrace.console.monitor.sample import TopicSample
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LINK, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.amounts import NONE, RETENTION_SUGGESTED, SECONDS, parse_amount
from headrace.core.errors import Forbidden, HeadraceError, TopicNotFound
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.reports.descriptions import TopicDescription
from headrace.core.rights import Right
from headrace.core.text import counted

_COLUMNS = (
    Column("name", "Name", is_sortable=True, slot=LINK, classes="hr-name"),
    Column("partitions", "Partitions", is_number=True, is_sortable=True, is_wide=True),
    Column("messages", "Messages", is_number=True, is_sortable=True),
    Column("bytes", "Stored", is_number=True, is_sortable=True, is_wide=True),
    Column("rate", "In", is_number=True, is_sortable=True, classes="hr-sampled"),
    Column("retention", "Kept for", is_number=True, is_wide=True),
    Column("lag", "Worst lag", is_number=True, is_sortable=True, classes="hr-sampled"),
)


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/topics", "Topics")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    page = _Topics(visit)
    with ui.element("div").classes("hr-bar"):
        parts.title("Topics")
        ui.space()
        search = ui.input(placeholder="Filter by name", value=visit.query.get("search", "")[:255])
        search.props("dense outlined clearable debounce=200 aria-label='Filter by name'").classes(
            "hr-search hr-page-search"
        )
        search.on_value_change(lambda event: page.filter(event.value or ""))
        # Any pattern may give the right; the server decides about the name.
        if any(Right.MANAGE in grant.rights for grant in visit.session.caller.grants):
            ui.button("Create topic", icon="add", on_click=page.create).props("unelevated")
    page.draw(search.value or "")
    with visit.reporting(in_banner=True):
        await page.refresh()
    visit.on_sample(page.refresh_quietly)


class _Topics:
    """The table and its dialogs."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._wanted = ""
        self._names: list[str] = []

    def draw(self, wanted: str) -> None:
        """Draw the table."""
        self._wanted = wanted
        self._table = PagedTable(_COLUMNS, self._load)
        self._nothing = ui.element("div").classes("full-width")

    async def filter(self, wanted: str) -> None:
        """Show only topics whose name contains a text."""
        self._wanted = wanted
        with self._visit.reporting():
            await self._table.refresh(first_page=True)

    async def refresh(self) -> None:
        """Load the names again."""
        self._names = await self._visit.client.list_topics()
        await self._table.refresh()
        self._show_nothing()

    async def refresh_quietly(self) -> None:
        """As `refresh`, with problems in the banner."""
        with self._visit.reporting(in_banner=True):
            await self.refresh()

    def _show_nothing(self) -> None:
        self._nothing.clear()
        if self._table.total:
            return
        with self._nothing, parts.panel():
            if self._names:
                with parts.empty(f"No topic contains “{text.visible(self._wanted)}”"):
                    pass
            else:
                with parts.empty("No topics yet", "Publishing to a name creates it:"):
                    parts.command("printf 'hello\\n' | headrace produce hello")

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        part = self._wanted.strip().casefold()
        names = [name for name in self._names if part in name.casefold()]
        history, sample = self._visit.history, self._visit.history.last
        known = sample.topics if sample is not None else {}
        lags = _worst_lags(self._visit)
        none = TopicSample()
        values: dict[str, Any] = {
            "name": lambda name: name.casefold(),
            "partitions": lambda name: known.get(name, none).partitions,
            "messages": lambda name: known.get(name, none).messages or 0.0,
            "bytes": lambda name: known.get(name, none).bytes_stored,
            "rate": lambda name: history.value("messages_in", name),
            "lag": lambda name: lags.get(name, -1.0),
        }
        shown: list[str] = cut(names, order, values.get(order.sort, values["name"]))
        described = await asyncio.gather(*(self._describe(name) for name in shown))
        return [self._row(name, topic, lags) for name, topic in zip(shown, described, strict=True)], len(names)

    async def _describe(self, name: str) -> TopicDescription | None:
        if not self._visit.session.may_read(name):
            return None
        try:
            return await self._visit.client.describe_topic(name)
        except (TopicNotFound, Forbidden):
            return None

    def _row(self, name: str, topic: TopicDescription | None, lags: dict[str, float]) -> Row:
        row: Row = {"key": name, "name": text.visible(name), "href": text.topic_page(name)}
        if topic is None:
            return row | {column.name: "–" for column in _COLUMNS[1:]}
        kept = topic.settings.retention_seconds
        lag = lags.get(name)
        return row | {
            "partitions": text.count(topic.partitions),
            "messages": text.count(sum(end - start for start, end in topic.offsets.values())),
            "bytes": text.size(topic.bytes_stored),
            "rate": text.rate(self._visit.history.value("messages_in", name)),
            "retention": text.duration(kept),
            "lag": "–" if lag is None else text.count(lag),
        }

    async def create(self) -> None:
        """Ask for a name and create a topic."""
        with ui.dialog() as dialog, ui.card().classes("hr-dialog"):
            ui.label("Create topic").classes("hr-title")
            name = ui.input("Name").props("outlined dense autofocus maxlength=255").classes("full-width")
            partitions = ui.number("Partitions", value=1, min=1, max=PARTITIONS_MAX, precision=0)
            partitions.props("outlined dense").classes("full-width")
            kept = ui.input("Keep messages for", value=RETENTION_SUGGESTED)
            kept.props(f'outlined dense hint="90m, 36h, 7d; {NONE} keeps them for ever"').classes("full-width q-pb-md")

            async def submit() -> None:
                with self._visit.reporting():
                    typed = (kept.value or "").strip()
                    seconds = None if typed == NONE else parse_amount("Keep messages for", typed, SECONDS)
                    topic = await self._visit.client.create_topic(
                        (name.value or "").strip(), int(partitions.value or 1), retention_seconds=seconds
                    )
                    dialog.submit(topic.name)

            with ui.element("div").classes("hr-bar"):
                ui.space()
                ui.button("Cancel", on_click=dialog.close).props("flat color=secondary")
                ui.button("Create", on_click=submit).props("unelevated")
            name.on("keydown.enter", submit)
        created: str | None = await parts.answer_of(dialog)
        if created:
            ui.navigate.to(text.topic_page(created))


def _worst_lags(visit: Visit) -> dict[str, float]:
    """The largest lag of any group by topic."""
    worst: dict[str, float] = {}
    sample = visit.history.last
    for (topic, _), state in sample.groups.items() if sample is not None else ():
        worst[topic] = max(worst.get(topic, 0.0), state.lag_messages)
    return worst


async def delete_topic(visit: Visit, topic: TopicDescription) -> None:
    """Delete a topic, once its name was typed."""
    messages = sum(end - start for start, end in topic.offsets.values())
    losses = [
        f"{counted(messages, 'message')} ({text.size(topic.bytes_stored)}) will be deleted for good.",
        f"{counted(len(topic.groups), 'group')} will lose their offsets." if topic.groups else "No group reads it.",
    ]
    if not await parts.Confirmation(f"Delete {text.visible(topic.name)}?", losses, topic.name, "Delete").ask():
        return
    try:
        await visit.client.delete_topic(topic.name)
    except HeadraceError as error:
        ui.notify(text.visible(str(error)), type="negative")
        return
    ui.navigate.to("/topics")

"""Producers of a topic: its sources with their last seqno and when they last wrote; reset one."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from headrace.console.view import parts, text
from headrace.console.view.tables import MONO, TIME, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.limits import SOURCES_LISTED
from headrace.core.reports.descriptions import SourceDescription, TopicDescription
from headrace.core.rights import Right

_COLUMNS = (
    Column("producer", "Producer id", is_sortable=True, slot=MONO, classes="hr-name"),
    Column("group", "Message group", slot=MONO, is_wide=True, classes="hr-name"),
    Column("seqno", "Last seqno", is_number=True, is_sortable=True),
    Column("partition", "Partition", is_number=True, is_wide=True),
    Column("seen", "Last seen", is_sortable=True, slot=TIME),
)
_RESET = Column(
    "reset",
    "",
    slot='<q-td :props="props" auto-width><q-btn flat dense no-caps color="negative" label="Reset" '
    "@click=\"() => $parent.$emit('reset', props.row.place)\" /></q-td>",
)


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab."""
    if not visit.session.may(Right.PUBLISH, topic.name):
        with parts.panel(), parts.empty("Your token may not see the producers", "That needs the right to publish."):
            return
    page = _Producers(visit, topic.name)
    await page.refresh()
    visit.on_sample(page.refresh)


class _Producers:
    """The table of sources."""

    def __init__(self, visit: Visit, topic: str) -> None:
        self._visit = visit
        self._topic = topic
        self._sources: list[SourceDescription] = []
        columns = [*_COLUMNS, _RESET] if visit.session.may(Right.MANAGE, topic) else _COLUMNS
        self._table = PagedTable(columns, self._load, sort="seen", descending=True)
        self._table.table.on("reset", self._reset)
        self._note = ui.label().classes("hr-muted hr-small")
        self._nothing = ui.element("div").classes("full-width")

    async def refresh(self) -> None:
        """List the sources again."""
        with self._visit.reporting(in_banner=True):
            self._sources = await self._visit.client.list_sources(self._topic)
            await self._table.refresh()
            self._table.table.set_visibility(bool(self._sources))
            is_cut = len(self._sources) >= SOURCES_LISTED
            self._note.set_text(f"The {SOURCES_LISTED:,} that wrote last." if is_cut else "")
            self._nothing.clear()
            if not self._sources:
                advice = "A producer with an id can retry safely: nothing is written twice."
                with self._nothing, parts.panel(), parts.empty("No producer with an id has written here", advice):
                    parts.command(
                        f"printf 'hello\\n' | headrace produce {text.shell(self._topic)} --producer-id till-7"
                    )

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        values: dict[str, Any] = {
            "producer": lambda source: source.producer_id,
            "seqno": lambda source: source.last_seqno or -1,
            "seen": lambda source: source.last_seen_us,
        }
        shown: list[SourceDescription] = cut(self._sources, order, values.get(order.sort, values["seen"]))
        return [_row(source) for source in shown], len(self._sources)

    async def _reset(self, event: GenericEventArguments) -> None:
        producer, group = event.args
        losses = [
            "Its next message may have any seqno.",
            "Messages that it sends again after the reset are written again.",
        ]
        if await parts.Confirmation(f"Reset {text.visible(producer)}?", losses, producer, "Reset").ask():
            with self._visit.reporting():
                await self._visit.client.reset_source(self._topic, producer, group)
                ui.notify("The source was reset", type="positive")
                await self.refresh()


def _row(source: SourceDescription) -> Row:
    return {
        "key": f"{source.producer_id}\0{source.message_group_id}",
        "place": [source.producer_id, source.message_group_id],
        "producer": text.visible(source.producer_id),
        "group": text.visible(source.message_group_id) or "–",
        "seqno": text.count(source.last_seqno),
        "partition": "–" if source.partition is None else str(source.partition),
        "seen": text.iso(source.last_seen_us),
    }

"""Partitions of a topic: offsets, share of the messages as a bar, and rate since the last look."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.tables import SKEW, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.reports.descriptions import TopicDescription

_COLUMNS = (
    Column("partition", "Partition", is_sortable=True),
    Column("start", "Start", is_number=True, is_wide=True),
    Column("end", "End", is_number=True, is_sortable=True),
    Column("messages", "Messages", is_number=True, is_sortable=True),
    Column("skew", "Share", slot=SKEW),
    Column("rate", "In", is_number=True, is_sortable=True),
)


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab."""
    page = _Partitions(visit, topic)
    await page.refresh()
    visit.on_sample(page.refresh)


class _Partitions:
    """The table, and the offsets of the last look."""

    def __init__(self, visit: Visit, topic: TopicDescription) -> None:
        self._visit = visit
        self._name = topic.name
        self._offsets = topic.offsets
        self._rates: dict[int, float] = {}
        self._looked = time.monotonic()
        with ui.element("div").classes("hr-cards"):
            self._count, self._messages = parts.Card("Partitions"), parts.Card("Messages")
            self._largest = parts.Card("Largest partition")
        self._table = PagedTable(_COLUMNS, self._load, sort="partition")

    async def refresh(self) -> None:
        """Look at the offsets again."""
        with self._visit.reporting(in_banner=True):
            offsets, now = await self._visit.client.offsets(self._name), time.monotonic()
            seconds = max(now - self._looked, 0.001)
            self._rates = {
                partition: max(0.0, (end - self._offsets.get(partition, (0, end))[1]) / seconds)
                for partition, (_, end) in offsets.items()
            }
            self._offsets, self._looked = offsets, now
            self._show_cards()
            await self._table.refresh()

    def _show_cards(self) -> None:
        sizes = {partition: end - start for partition, (start, end) in self._offsets.items()}
        total, mean = sum(sizes.values()), sum(sizes.values()) / len(sizes)
        largest = max(sizes, key=lambda each: sizes[each])
        self._count.set(text.count(len(sizes)))
        self._messages.set(text.count(total), f"{text.short_count(mean)} per partition")
        self._largest.set(
            f"{sizes[largest] / mean:.1f} × mean" if mean else "–", f"partition {largest}" if total else ""
        )

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        values: dict[str, Any] = {
            "partition": lambda each: each,
            "end": lambda each: self._offsets[each][1],
            "messages": lambda each: self._offsets[each][1] - self._offsets[each][0],
            "rate": lambda each: self._rates.get(each, 0.0),
        }
        shown = cut(list(self._offsets), order, values.get(order.sort, values["partition"]))
        most = max((end - start for start, end in self._offsets.values()), default=0)
        total = sum(end - start for start, end in self._offsets.values())
        return [self._row(each, most, total) for each in shown], len(self._offsets)

    def _row(self, partition: int, most: int, total: int) -> Row:
        start, end = self._offsets[partition]
        return {
            "key": partition,
            "partition": str(partition),
            "start": text.count(start),
            "end": text.count(end),
            "messages": text.count(end - start),
            "skew": f"{(end - start) / total * 100 if total else 0:.1f} % of all messages",
            "skew_width": f"{(end - start) / most * 100 if most else 0:.1f}%",
            "rate": text.rate(self._rates.get(partition, 0.0)),
        }

"""Groups: all that the visitor may see, with their lag."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from headrace.console.monitor.sample import GroupSample
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LINK, TIME, TOPIC_LINK, Column, PagedTable, PageOrder, Row, cut
from headrace.console.view.visit import Visit
from headrace.core.errors import HeadraceError

_COLUMNS = (
    Column("name", "Group", is_sortable=True, slot=LINK, classes="hr-name"),
    Column("topic", "Topic", is_sortable=True, slot=TOPIC_LINK, classes="hr-name"),
    Column("members", "Members", is_number=True, is_sortable=True, is_wide=True),
    Column("lag", "Lag", is_number=True, is_sortable=True),
    Column("age", "Oldest unread", is_number=True, is_sortable=True, is_wide=True),
    Column("commit", "Last commit", is_sortable=True, slot=TIME, is_wide=True),
)
# Without samples the groups of this many topics are asked for.
_TOPICS_ASKED = 100

Key = tuple[str, str]


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/groups", "Groups")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    with ui.element("div").classes("hr-bar"):
        parts.title("Groups")
        ui.space()
        search = ui.input(placeholder="Filter by group or topic")
        search.props("dense outlined clearable debounce=200 aria-label='Filter by group or topic'")
        search.classes("hr-search hr-page-search")
    page = GroupTable(visit, None)
    search.on_value_change(lambda event: page.filter(event.value or ""))
    await page.start()


class GroupTable:
    """The groups of one topic, or of all."""

    def __init__(self, visit: Visit, topic: str | None) -> None:
        self._visit = visit
        self._topic = topic
        self._wanted = ""
        self._groups: dict[Key, GroupSample] = {}
        self._is_cut = False
        columns = [column for column in _COLUMNS if topic is None or column.name != "topic"]
        self._table = PagedTable(columns, self._load, sort="lag", descending=True)
        self._nothing = ui.element("div").classes("full-width")

    async def start(self) -> None:
        """Show the groups, now and after every sample."""
        await self.refresh()
        self._visit.on_sample(self.refresh)

    async def filter(self, wanted: str) -> None:
        """Show only groups whose name or topic contains a text."""
        self._wanted = wanted.strip().casefold()
        await self._table.refresh(first_page=True)

    async def refresh(self) -> None:
        """Load the groups again."""
        with self._visit.reporting(in_banner=True):
            self._groups = await self._find()
            await self._table.refresh()
            self._nothing.clear()
            if not self._groups:
                self._show_nothing()

    def _show_nothing(self) -> None:
        with self._nothing, parts.panel():
            if self._is_cut:
                with parts.empty("No groups found yet", "The store has many topics: groups arrive with a sample."):
                    return
            with parts.empty("No groups yet", "A group is made by its first reader:"):
                parts.command(f"headrace consume {text.shell(self._topic or 'TOPIC')} --group billing")

    async def _find(self) -> dict[Key, GroupSample]:
        sample = self._visit.history.last
        session = self._visit.session
        named = (self._topic or "").casefold()
        # Of very many topics only the busiest are in a sample.
        is_sampled = sample is not None and (not named or any(name.casefold() == named for name in sample.topics))
        if sample is not None and is_sampled and self._visit.poller.problem is None:
            self._is_cut = False
            return {
                key: state
                for key, state in sample.groups.items()
                if session.may_read(key[0]) and (self._topic is None or key[0].casefold() == named)
            }
        names = [self._topic] if self._topic else await self._visit.client.list_topics()
        readable = [name for name in names if session.may_read(name)]
        self._is_cut, readable = len(readable) > _TOPICS_ASKED, readable[:_TOPICS_ASKED]
        listed = await asyncio.gather(*(self._visit.client.list_groups(name) for name in readable))
        keys = [(topic, group) for topic, groups in zip(readable, listed, strict=True) for group in groups]
        states = await asyncio.gather(*(self._describe(*key) for key in keys))
        return dict(zip(keys, states, strict=True))

    async def _describe(self, topic: str, group: str) -> GroupSample:
        try:
            found = await self._visit.client.describe_group(topic, group)
        except HeadraceError:
            return GroupSample()
        return GroupSample(found.lag_messages, found.lag_seconds, len(found.members), found.important)

    async def _load(self, order: PageOrder) -> tuple[list[Row], int]:
        wanted = self._wanted
        keys = [key for key in self._groups if wanted in key[1].casefold() or wanted in key[0].casefold()]
        values: dict[str, Any] = {
            "name": lambda key: key[1].casefold(),
            "topic": lambda key: key[0].casefold(),
            "members": lambda key: self._groups[key].members,
            "lag": lambda key: self._groups[key].lag_messages,
            "age": lambda key: self._groups[key].lag_seconds,
            "commit": lambda key: self._groups[key].last_commit,
        }
        shown = cut(keys, order, values.get(order.sort, values["lag"]))
        return [_row(key, self._groups[key]) for key in shown], len(keys)


def _row(key: Key, state: GroupSample) -> Row:
    topic, group = key
    return {
        "key": f"{topic}\0{group}",
        "name": text.visible(group),
        "href": text.group_page(topic, group),
        "topic": text.visible(topic),
        "topic_href": text.topic_page(topic),
        "members": text.count(state.members),
        "lag": text.count(state.lag_messages),
        "age": text.duration(state.lag_seconds) if state.lag_messages else "–",
        "commit": text.iso(round(state.last_commit * 1e6)) if state.last_commit else "",
    }

"""Messages of a topic: the newest, kept up to date, or those from an offset or a time on; one of them in full."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import background_tasks, ui
from nicegui.events import GenericEventArguments

from headrace.client.message import Message
from headrace.console.messages.download import FORMATS, encode
from headrace.console.messages.payload import preview
from headrace.console.messages.reader import MessageQuery, Tail, read
from headrace.console.pages.topic import message as one_message
from headrace.console.pages.topic.search_bar import SearchBar
from headrace.console.view import parts, text
from headrace.console.view.frame import Visit
from headrace.console.view.tables import MONO, TIME, Column, Row, ShortTable
from headrace.core.reports.descriptions import TopicDescription

_COLUMNS = (
    Column("time", "Written", slot=TIME),
    Column("partition", "Partition", is_number=True, is_wide=True),
    Column("offset", "Offset", is_number=True),
    Column("message_key", "Key", slot=MONO, is_wide=True),
    Column("value", "Value", slot=MONO, classes="hr-cut"),
)
_STARTS = {"newest": "Newest", "offset": "From offset", "time": "From time"}
_COUNTS = [25, 50, 100, 200]
# In a list of more partitions one is typed.
_PARTITIONS_LISTED = 200
_KEY_CHARACTERS = 60


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab."""
    page = _Messages(visit, topic)
    page.draw()
    await page.load()
    background_tasks.create(page.follow(), name="follow a topic")
    offset = visit.query.get("offset", "")
    partition = visit.query.get("partition", "")
    if offset.isdecimal() and partition.isdecimal():
        await ui.context.client.connected()
        await one_message.open_message(visit, topic.name, int(partition), int(offset))


def row_of(message: Message) -> Row:
    """A message as a row of a table."""
    return {
        "key": f"{message.partition}-{message.offset}",
        "place": [message.partition, message.offset],
        "time": text.iso(message.timestamp_us),
        "partition": str(message.partition),
        "offset": f"{message.offset:,}",
        "message_key": "" if message.key is None else preview(message.key, _KEY_CHARACTERS),
        "value": preview(message.value),
    }


class _Messages:
    """The toolbar and the table."""

    def __init__(self, visit: Visit, topic: TopicDescription) -> None:
        self._visit = visit
        self._topic = topic
        self._tail: Tail | None = None
        self._client = ui.context.client
        self.shown: list[Message] = []

    def draw(self) -> None:
        """Draw toolbar and table."""
        with ui.element("div").classes("hr-bar"):
            self._start = ui.select(_STARTS, value="newest", on_change=self._change_start)
            self._start.props("dense outlined options-dense aria-label=Start").style("min-width: 130px")
            self._offset = ui.number(label="Offset", value=0, min=0, precision=0, on_change=self.load)
            self._offset.props("dense outlined debounce=400").style("width: 130px")
            self._time = ui.input(label="Time", on_change=self.load).props("dense outlined type=datetime-local step=1")
            self._partition = self._partition_choice()
            self._count = ui.select(_COUNTS, value=50, on_change=self.load).props("dense outlined options-dense")
            self._count.props('suffix="messages"').style("min-width: 130px")
            self._live = ui.switch("Live", value=True, on_change=self._note_pause).props("dense")
            self._note = ui.label().classes("hr-muted hr-small")
            ui.space()
            with ui.button("Download", icon="download").props("flat color=secondary"), ui.menu():
                for form, label in FORMATS.items():
                    ui.menu_item(label, lambda form=form: self._download(form))
        self._change_start_fields()
        SearchBar(self._visit, self._topic.name, self._show_found, self._end_search)
        self._table = ShortTable(_COLUMNS)
        self._table.table.on("rowClick", self._open, [[], ["place"], []])
        self._table.table.classes("hr-rows")
        self._nothing = ui.element("div").classes("full-width")

    def _partition_choice(self) -> Any:
        count = self._topic.partitions
        if count <= _PARTITIONS_LISTED:
            options: dict[int, str] = {-1: "All partitions"} | {
                number: f"Partition {number}" for number in range(count)
            }
            choice = ui.select(options, value=-1, on_change=self.load).props("dense outlined options-dense")
            return choice.style("min-width: 150px")
        field = ui.number(
            label=f"Partition (0 to {count - 1:,})", min=0, max=count - 1, precision=0, on_change=self.load
        )
        return field.props("dense outlined debounce=400 clearable").style("width: 190px")

    async def _change_start(self) -> None:
        self._change_start_fields()
        if self._start.value != "time" or self._time.value:
            await self.load()

    def _change_start_fields(self) -> None:
        self._offset.set_visibility(self._start.value == "offset")
        self._time.set_visibility(self._start.value == "time")
        self._live.set_visibility(self._start.value == "newest")

    async def _wanted(self) -> MessageQuery:
        partition = self._partition.value
        moment = None
        if self._start.value == "time" and self._time.value:
            moment = await parts.browser_time(self._time.value)
        return MessageQuery(
            start=self._start.value,
            partition=None if partition is None or partition < 0 else int(partition),
            offset=int(self._offset.value or 0),
            time=moment,
            count=self._count.value,
        )

    async def load(self) -> None:
        """Read what the toolbar asks for."""
        with self._visit.reporting(in_banner=True):
            self._topic = await self._visit.client.describe_topic(self._topic.name)
            wanted = await self._wanted()
            found = await read(self._visit.client, self._topic, wanted)
            self._tail = Tail(self._topic, wanted, found.messages) if wanted.start == "newest" else None
            note = "Fewer are shown, because they are large" if found.is_cut else ""
            if found.partitions_left_out:
                note = f"{found.partitions_left_out:,} more partitions have messages: choose one"
            self._show(found.messages, note)

    def _show_found(self, found: list[Message]) -> None:
        self._tail = None
        self._live.set_visibility(False)
        self._show(found, "", "Nothing found yet")

    async def _end_search(self) -> None:
        self._change_start_fields()
        await self.load()

    async def _download(self, form: str) -> None:
        content = await asyncio.to_thread(encode, list(self.shown), form)
        ui.download.content(content, f"{self._topic.id}-messages.{form}")

    async def follow(self) -> None:
        """Keep the newest messages up to date, until the page is closed."""
        while not self._client.is_deleted and not self._visit.session.is_over:
            tail = self._tail
            await asyncio.sleep(1.0 if tail is None else tail.interval_seconds)
            tail = self._tail
            if tail is None or not self._live.value or self._client.is_deleted:
                continue
            with self._client, self._visit.reporting(in_banner=True):
                if await tail.look(self._visit.client) and tail is self._tail and self._live.value:
                    passed = (
                        f"{tail.passed_over:,} messages arrived faster than they are shown" if tail.passed_over else ""
                    )
                    self._show(tail.messages, passed)

    def _note_pause(self) -> None:
        self._note.set_text("" if self._live.value else "Paused")

    def _show(self, messages: list[Message], note: str, nothing: str = "") -> None:
        self.shown = messages
        self._note.set_text(note)
        self._table.show([row_of(each) for each in messages])
        self._table.table.set_visibility(bool(messages))
        self._nothing.clear()
        if not messages:
            self._show_nothing(nothing)

    def _show_nothing(self, nothing: str) -> None:
        with self._nothing, parts.panel():
            if nothing:
                with parts.empty(nothing):
                    pass
            elif any(end > start for start, end in self._topic.offsets.values()):
                with parts.empty("No messages here", "Choose another start or partition."):
                    pass
            else:
                with parts.empty("No messages yet", "Publish one here, or from a terminal:"):
                    parts.command(f"printf 'hello\\n' | headrace produce {text.shell(self._topic.name)}")

    async def _open(self, event: GenericEventArguments) -> None:
        partition, offset = event.args[1]["place"]
        await one_message.open_message(self._visit, self._topic.name, int(partition), int(offset))

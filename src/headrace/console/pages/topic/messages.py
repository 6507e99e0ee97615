"""Messages of a topic: the newest, kept up to date, or those from an offset or a time on; one of them in full."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from nicegui import background_tasks, ui
from nicegui.events import GenericEventArguments

from headrace.client.message import Message
from headrace.console.messages.address import COUNTS, ListAddress
from headrace.console.messages.download import FORMATS, encode
from headrace.console.messages.payload import preview
from headrace.console.messages.reader import MessageQuery, Tail, read
from headrace.console.messages.typed import TypedValues
from headrace.console.pages.topic.message import MessagePanel, Place
from headrace.console.pages.topic.search_bar import SearchBar
from headrace.console.view import parts, text
from headrace.console.view.tables import MONO, TIME, Column, Row, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.reports.descriptions import TopicDescription

_COLUMNS = (
    Column("time", "Written", slot=TIME),
    Column("partition", "Partition", is_number=True, classes="hr-part"),
    Column("offset", "Offset", is_number=True),
    Column("message_key", "Key", slot=MONO, classes="hr-key"),
    Column("value", "Value", slot=MONO, classes="hr-cut"),
)
_STARTS = {"newest": "Newest", "offset": "From offset", "time": "From time"}
# In a list of more partitions one is typed.
_PARTITIONS_LISTED = 200
_KEY_CHARACTERS = 60


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab."""
    asked = ListAddress.of(visit.query)
    page = _Messages(visit, topic, asked)
    page.draw()
    if asked.time is not None:
        await visit.connected()
        await page.show_time(asked.time)
    await page.load()
    background_tasks.create(page.follow(), name="follow a topic")
    if asked.search or asked.message is not None:
        await visit.connected()
        await page.resume(asked)


def row_of(message: Message, decoded: str | None) -> Row:
    """A message as a row of a table; `decoded` is its value by the schema of the topic."""
    return {
        "key": f"{message.partition}-{message.offset}",
        "place": [message.partition, message.offset],
        "time": text.iso(message.timestamp_us),
        "partition": str(message.partition),
        "offset": f"{message.offset:,}",
        "message_key": "" if message.key is None else preview(message.key, _KEY_CHARACTERS),
        "value": preview(message.value if decoded is None else decoded.encode()),
    }


class _Messages:
    """The toolbar and the table."""

    def __init__(self, visit: Visit, topic: TopicDescription, asked: ListAddress) -> None:
        self._visit = visit
        self._topic = topic
        self._asked = asked
        self._typed = TypedValues(topic.settings.value_schema)
        self._tail: Tail | None = None
        # The last reading failed: it is repeated.
        self._has_failed = False
        self._is_held = False
        self._time_shown: datetime | None = None
        self._place: Place | None = None
        self._client = ui.context.client
        self.shown: list[Message] = []

    def draw(self) -> None:
        """Draw toolbar and table, as the address asks for them."""
        asked = self._asked
        with ui.element("div").classes("hr-bar"):
            self._start = ui.select(_STARTS, value=asked.start, on_change=self._change_start)
            self._start.props("dense outlined options-dense aria-label=Start").style("min-width: 130px")
            self._offset = ui.number(label="Offset", value=asked.offset, min=0, precision=0, on_change=self.load)
            self._offset.props("dense outlined debounce=400").style("width: 130px")
            self._time = ui.input(label="Time", on_change=self.load).props("dense outlined type=datetime-local step=1")
            self._partition = self._partition_choice()
            self._count = ui.select(list(COUNTS), value=asked.count, on_change=self.load)
            self._count.props('dense outlined options-dense suffix="messages"').style("min-width: 130px")
            self._live = ui.switch("Live", value=True, on_change=self._note_pause).props("dense")
            self._note = ui.label().classes("hr-muted hr-small")
            ui.space()
            with ui.button("Download", icon="download").props("flat color=secondary"), ui.menu():
                for form, label in FORMATS.items():
                    ui.menu_item(label, lambda form=form: self._download(form))
        self._change_start_fields()
        self._search = SearchBar(self._visit, self._topic.name, self._typed, self._show_found, self._end_search)
        self._table = ShortTable(_COLUMNS)
        self._table.table.on("rowClick", self._open, [[], ["place"], []])
        self._table.table.on("hold", self._hold, ["detail"])
        self._table.table.classes("hr-rows")
        self._nothing = ui.element("div").classes("full-width")
        self._panel = MessagePanel(
            self._visit, self._topic.name, self._typed, lambda: [_place(each) for each in self.shown], self._note_place
        )

    async def show_time(self, moment: datetime) -> None:
        """Show a time of the address in the reader's zone."""
        self._time_shown = moment
        self._time.set_value(await parts.local_time(moment))

    async def resume(self, asked: ListAddress) -> None:
        """Search for what the address asks for, and open its message."""
        if asked.search:
            await self._search.start_with(asked.search, asked.kind)
        if asked.message is not None:
            await self._panel.open(asked.message)

    def _address(self) -> str:
        """The address of what is shown now."""
        search, kind = self._search.wanted
        partition = self._partition.value
        return ListAddress(
            start=self._start.value,
            offset=int(self._offset.value or 0),
            time=self._time_shown,
            partition=None if partition is None or partition < 0 else int(partition),
            count=self._count.value,
            search=search,
            kind=kind,
            message=self._place,
        ).page(self._topic.name)

    def _note_address(self) -> str:
        """Show it in the browser, if that has changed."""
        address = self._address()
        if self._visit.addresses.get("messages") != address:
            is_first = "messages" not in self._visit.addresses
            self._visit.addresses["messages"] = address
            if not is_first:
                ui.navigate.history.replace(address)
        return address

    def _note_place(self, place: Place | None) -> str:
        self._place = place
        return self._note_address()

    def _partition_choice(self) -> Any:
        count = self._topic.partitions
        if count <= _PARTITIONS_LISTED:
            options: dict[int, str] = {-1: "All partitions"} | {
                number: f"Partition {number}" for number in range(count)
            }
            wanted = -1 if self._asked.partition not in options else self._asked.partition
            choice = ui.select(options, value=wanted, on_change=self.load).props("dense outlined options-dense")
            return choice.style("min-width: 150px")
        label = f"Partition (0 to {count - 1:,})"
        field = ui.number(
            label=label, value=self._asked.partition, min=0, max=count - 1, precision=0, on_change=self.load
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
        self._time_shown = moment
        return MessageQuery(
            start=self._start.value,
            partition=None if partition is None or partition < 0 else int(partition),
            offset=int(self._offset.value or 0),
            time=moment,
            count=self._count.value,
        )

    async def load(self) -> None:
        """Read what the toolbar asks for."""
        self._has_failed = not await self._is_loaded()

    async def _is_loaded(self) -> bool:
        with self._visit.reporting(in_banner=True):
            self._topic = await self._visit.client.describe_topic(self._topic.name)
            wanted = await self._wanted()
            found = await read(self._visit.client, self._topic, wanted)
            self._tail = Tail(self._topic, wanted, found.messages) if wanted.start == "newest" else None
            note = "Fewer are shown, because they are large" if found.is_cut else ""
            if found.partitions_left_out:
                note = f"{found.partitions_left_out:,} more partitions have messages: choose one"
            self._show(found.messages, note)
            self._note_address()
            return True
        return False

    def _show_found(self, found: list[Message]) -> None:
        self._tail, self._has_failed = None, False
        self._live.set_visibility(False)
        self._show(found, "", "Nothing found yet")
        self._note_address()

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
            if self._has_failed and not self._client.is_deleted:
                with self._client:
                    await self.load()
            tail = self._tail
            if tail is None or not self._live.value or self._is_held or self._client.is_deleted:
                continue
            with self._client, self._visit.reporting(in_banner=True):
                is_new = await tail.look(self._visit.client)
                if is_new and tail is self._tail and self._live.value and not self._is_held:
                    passed = (
                        f"{tail.passed_over:,} messages arrived faster than they are shown" if tail.passed_over else ""
                    )
                    self._show(tail.messages, passed)

    def _hold(self, event: GenericEventArguments) -> None:
        """The mouse is over a row, or one was chosen by keyboard: what somebody is about to open stays where it is."""
        self._is_held = bool(event.args["detail"])
        if self._tail is not None and self._live.value:
            if not self._is_held and self._tail.messages is not self.shown:
                self._show(self._tail.messages, "")
            self._note.set_text("Paused while a row is chosen" if self._is_held else "")

    def _note_pause(self) -> None:
        self._note.set_text("" if self._live.value else "Paused")

    def _show(self, messages: list[Message], note: str, nothing: str = "") -> None:
        self.shown = messages
        self._note.set_text(note)
        decoded = self._typed.previews([None if each.codec else each.value for each in messages])
        self._table.show([row_of(*pair) for pair in zip(messages, decoded, strict=True)])
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
        await self._panel.open((int(partition), int(offset)))


def _place(message: Message) -> Place:
    return message.partition, message.offset

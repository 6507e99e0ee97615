"""Publish a message by hand: key, attributes, partition; JSON is checked before it is sent."""

from __future__ import annotations

import json

import pyarrow as pa
from nicegui import ui

from headrace.console.view import text
from headrace.console.view.frame import Visit
from headrace.core.messages import ATTRIBUTES
from headrace.core.reports.descriptions import TopicDescription


class PublishDialog:
    """A form for one message; it stays open for the next."""

    def __init__(self, visit: Visit, topic: TopicDescription) -> None:
        self._visit = visit
        self._topic = topic
        with ui.dialog() as self._dialog, ui.card().classes("hr-dialog"):
            ui.label(f"Publish to {text.visible(topic.name)}").classes("hr-title")
            with ui.element("div").classes("hr-bar").style("flex-wrap: nowrap"):
                self._key = ui.input("Key (optional)").props("outlined dense").classes("hr-grow")
                self._partition = (
                    ui.number("Partition (by key)", min=0, max=topic.partitions - 1, precision=0)
                    .props("outlined dense clearable")
                    .style("width: 190px; flex: none")
                )
            self._value = (
                ui.textarea("Value").props("outlined autofocus input-class=hr-mono rows=8").classes("full-width")
            )
            self._is_json = ui.checkbox("Check that it is JSON", value=False).props("dense")
            self._attributes = ui.textarea("Attributes, one NAME=VALUE a line (optional)")
            self._attributes.props("outlined input-class=hr-mono rows=2").classes("full-width")
            self._problem = ui.label().classes("hr-bad").props("role=alert")
            with ui.element("div").classes("hr-bar"):
                self._done = ui.label().classes("hr-good").props("role=status")
                ui.space()
                ui.button("Close", on_click=self._dialog.close).props("flat color=secondary")
                ui.button("Publish", icon="send", on_click=self._publish).props("unelevated")

    def open(self) -> None:
        """Show the form."""
        self._dialog.open()

    async def _publish(self) -> None:
        self._problem.set_text("")
        self._done.set_text("")
        try:
            batch = self._batch()
        except ValueError as error:
            self._problem.set_text(str(error))
            return
        with self._visit.reporting():
            async with self._visit.client.producer(self._topic.name) as producer:
                receipts = await producer.send_batch(batch)
            receipt = receipts.to_pylist()[0]
            self._done.set_text(f"Written to partition {receipt['partition']}, offset {receipt['offset']:,}.")

    def _batch(self) -> pa.RecordBatch:
        """The message as a batch; raises ValueError with what is wrong."""
        value = self._value.value or ""
        if self._is_json.value:
            try:
                json.loads(value)
            except ValueError as error:
                raise ValueError(f"The value is not JSON: {error}") from None
        columns: dict[str, pa.Array] = {"value": pa.array([value.encode()], pa.binary())}
        if self._key.value:
            columns["key"] = pa.array([self._key.value.encode()], pa.binary())
        attributes = _attributes(self._attributes.value or "")
        if attributes:
            columns["attributes"] = pa.array([attributes], ATTRIBUTES)
        if self._partition.value is not None:
            columns["partition"] = pa.array([int(self._partition.value)], pa.int32())
        return pa.RecordBatch.from_pydict(columns)


def _attributes(lines: str) -> list[tuple[str, bytes]]:
    found = []
    for line in filter(None, (line.strip() for line in lines.splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"Attributes: write {text.visible(line[:60])!r} as NAME=VALUE")
        found.append((name.strip(), value.encode()))
    return found

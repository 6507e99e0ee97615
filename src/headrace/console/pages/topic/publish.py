"""Publish a message by hand, or one that was read again: edited, or to another topic."""

from __future__ import annotations

import json

from nicegui import ui

from headrace.client.message import Message
from headrace.console.messages.draft import PREFIX, Draft
from headrace.console.view import text
from headrace.console.view.visit import Visit
from headrace.core.rights import Right


def may_publish_somewhere(visit: Visit) -> bool:
    """Whether the visitor may publish to any topic; the server decides about each."""
    return any(Right.PUBLISH in grant.rights for grant in visit.session.caller.grants)


class PublishDialog:
    """A form for one message; it stays open for the next."""

    def __init__(self, visit: Visit, topic: str, message: Message | None = None) -> None:
        self._visit = visit
        self._draft = Draft() if message is None else Draft.of(message)
        draft, is_fixed = self._draft, message is not None and self._draft.kept_value is not None
        with ui.dialog() as self._dialog, ui.card().classes("hr-dialog hr-publish"):
            again = "" if message is None else " again"
            ui.label(f"Publish{again} to {text.visible(topic)}" if message is None else "Publish again").classes(
                "hr-title"
            )
            with ui.element("div").classes("hr-bar").style("flex-wrap: nowrap"):
                self._topic = ui.input("Topic", value=topic).props("outlined dense maxlength=255").classes("hr-grow")
                self._topic.set_visibility(message is not None)
            with ui.element("div").classes("hr-bar").style("flex-wrap: nowrap"):
                self._key = ui.input("Key (optional)", value=draft.key).props("outlined dense").classes("hr-grow")
                self._partition = (
                    ui.number("Partition (by key)", min=0, precision=0)
                    .props("outlined dense clearable")
                    .style("width: 190px; flex: none")
                )
            self._value = ui.textarea("Value", value=draft.value).classes("full-width")
            self._value.props("outlined autofocus input-class=hr-mono rows=8").set_visibility(not is_fixed)
            if is_fixed:
                ui.label(_fixed(draft)).classes("hr-muted")
            with ui.element("div").classes("hr-bar"):
                self._is_json = ui.checkbox("Check that it is JSON", value=_is_json(draft.value)).props("dense")
                self._is_null = ui.checkbox("Null", value=draft.is_null).props("dense")
            self._attributes = ui.textarea("Attributes, one NAME=VALUE a line (optional)", value=draft.attributes)
            self._attributes.props("outlined input-class=hr-mono rows=2").classes("full-width")
            if draft.kept_attributes:
                names = ", ".join(text.visible(name) for name, _ in draft.kept_attributes)
                ui.label(f"Published as they are: {names}").classes("hr-muted hr-small")
            ui.label(f"Bytes that are no text: {PREFIX} and the bytes in base64.").classes("hr-muted hr-small")
            self._problem = ui.label().classes("hr-bad").props("role=alert")
            with ui.element("div").classes("hr-bar"):
                self._done = ui.label().classes("hr-good").props("role=status")
                ui.space()
                ui.button("Close", on_click=self._dialog.close).props("flat color=secondary")
                ui.button("Publish", icon="send", on_click=self._publish).props("unelevated")
        self._dialog.on_value_change(lambda event: None if event.value else self._dialog.delete())

    def open(self) -> None:
        """Show the form; it is gone once it is closed."""
        self._dialog.open()

    async def _publish(self) -> None:
        self._problem.set_text("")
        self._done.set_text("")
        topic = (self._topic.value or "").strip()
        try:
            batch = self._written().batch()
            await self._check_topic(topic)
        except ValueError as error:
            self._problem.set_text(str(error))
            return
        with self._visit.reporting():
            async with self._visit.client.producer(topic) as producer:
                receipts = await producer.send_batch(batch)
            receipt = receipts.to_pylist()[0]
            place = f"partition {receipt['partition']}, offset {receipt['offset']:,}"
            told = "Written to" if receipt["status"] == "written" else "Not written, the topic has it already:"
            self._done.set_text(f"{told} {place}.")

    async def _check_topic(self, topic: str) -> None:
        """A slip in the name of a topic must not create one."""
        with self._visit.reporting():
            names = await self._visit.client.list_topics()
            if topic.casefold() not in {name.casefold() for name in names}:
                raise ValueError(f"There is no topic {text.visible(topic)!r} that you may use.")

    def _written(self) -> Draft:
        """What is in the fields now; raises ValueError."""
        value, draft = self._value.value or "", self._draft
        if self._is_json.value and draft.kept_value is None and not self._is_null.value:
            try:
                json.loads(value)
            except ValueError as error:
                raise ValueError(f"The value is not JSON: {error}") from None
        return Draft(
            key=self._key.value or "",
            value=value,
            is_null=self._is_null.value,
            attributes=self._attributes.value or "",
            partition=None if self._partition.value is None else int(self._partition.value),
            kept_value=None if self._is_null.value else draft.kept_value,
            codec=None if self._is_null.value else draft.codec,
            kept_attributes=draft.kept_attributes,
        )


def _fixed(draft: Draft) -> str:
    size = text.size(len(draft.kept_value or b""))
    reason = "it is too large to edit here" if draft.codec is None else f"it is compressed with {draft.codec}"
    return f"The value of {size} is published as it is: {reason}."


def _is_json(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False

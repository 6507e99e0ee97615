"""One message in a panel at the side: where it is, its key and attributes, and its value in every readable form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from headrace.client.message import Message
from headrace.console.messages.payload import forms, preview
from headrace.console.messages.reader import read_range
from headrace.console.messages.tree import tree_of
from headrace.console.messages.typed import Readable, TypedValues
from headrace.console.pages.topic.publish import PublishDialog, may_publish_somewhere
from headrace.console.view import parts, text
from headrace.console.view.visit import Visit

_TREE = "Tree"
_ICON = "flat dense round color=secondary"

# Partition and offset.
Place = tuple[int, int]


class MessagePanel:
    """Shows one message of a topic, and leads to its neighbours in the list behind it.

    neighbours: the places of the messages in the list. note: called with the place that is shown, None once it is
    closed; it returns the address of that.
    """

    def __init__(
        self,
        visit: Visit,
        topic: str,
        typed: TypedValues,
        neighbours: Callable[[], Sequence[Place]],
        note: Callable[[Place | None], str],
    ) -> None:
        self._visit = visit
        self._topic = topic
        self._typed = typed
        self._neighbours = neighbours
        self._note = note
        self._place: Place | None = None
        with ui.dialog().props("position=right full-height") as self._dialog:
            self._card = ui.card().classes("hr-side")
        self._dialog.on_value_change(lambda event: None if event.value else self._close())

    async def open(self, place: Place) -> None:
        """Read a message again and show it."""
        found: list[Message] = []
        partition, offset = place
        with self._visit.reporting():
            found = await read_range(self._visit.client, self._topic, partition, offset, offset + 1)
            if not found:
                ui.notify(f"There is no message at offset {offset} of partition {partition}.", type="warning")
                return
        if found:
            message = found[0]
            decoded = await asyncio.to_thread(self._typed.decode, None if message.codec else message.value)
            self._place = place
            self._card.clear()
            with self._card:
                self._draw(message, decoded, self._note(place))
            self._dialog.open()

    def _close(self) -> None:
        self._place = None
        self._card.clear()
        self._note(None)

    def _draw(self, message: Message, decoded: Readable, address: str) -> None:
        with ui.element("div").classes("hr-bar hr-side-head"):
            ui.label(f"Partition {message.partition}, offset {message.offset:,}").classes("hr-title")
            ui.space()
            self._step("keyboard_arrow_up", "Previous message (k)", "hr-previous", -1)
            self._step("keyboard_arrow_down", "Next message (j)", "hr-next", 1)
            if may_publish_somewhere(self._visit):
                again = PublishDialog
                ui.button(
                    "Publish again", icon="send", on_click=lambda: again(self._visit, self._topic, message).open()
                ).props("flat dense")
            ui.button(icon="link", on_click=lambda: _copy_link(address)).props(
                f'{_ICON} aria-label="Copy a link to this message"'
            )
            ui.button(
                icon="download",
                on_click=lambda: ui.download.content(message.value or b"", f"{message.partition}-{message.offset}.bin"),
            ).props(f'{_ICON} aria-label="Download the value"')
            ui.button(icon="close", on_click=self._dialog.close).props(f"{_ICON} aria-label=Close")
        _show_facts(message)
        _show_value(message.value, decoded)

    def _step(self, icon: str, label: str, name: str, step: int) -> None:
        """A button that leads to the next message of the list in one direction."""
        places = list(self._neighbours())
        at = places.index(self._place) + step if self._place in places else -1

        def go() -> Awaitable[None]:
            return self.open(places[at])

        button = ui.button(icon=icon, on_click=go).props(f'{_ICON} aria-label="{label}"').classes(name)
        button.set_enabled(0 <= at < len(places))


def _show_facts(message: Message) -> None:
    source = None
    if message.producer_id is not None:
        group = f" / {message.message_group_id}" if message.message_group_id else ""
        source = f"{message.producer_id}{group}, seqno {message.seqno}"
    parts.facts(
        {
            "Written": lambda: parts.moment(message.timestamp_us),
            "Created": None if message.created_us is None else lambda: parts.moment(message.created_us),
            "Key": preview(message.key, 2_000) if message.key is not None else "none",
            "Source": source,
            "Size": "null" if message.value is None else text.size(len(message.value)),
            "Codec": None if message.codec is None else f"{message.codec}: it cannot be decoded and is shown as stored",
        }
    )
    if message.attributes:
        ui.label("Attributes").classes("hr-panel-title")
        parts.facts({text.visible(name): preview(value, 2_000) for name, value in message.attributes.items()})


def _show_value(value: bytes | None, decoded: Readable) -> None:
    """The value as a folding tree where it is JSON or its schema makes it that, and as text of several kinds."""
    shown = forms(value)
    if decoded.text is not None:
        # What the schema says stands first; the bytes stay to be seen.
        shown = {"JSON": forms(decoded.text.encode())["JSON"]} | {
            name: form for name, form in shown.items() if name != "JSON"
        }
    source = value if decoded.text is None else decoded.text.encode()
    tree = None if source is None else tree_of(source)
    names = [*([_TREE] if tree is not None else []), *shown]
    with ui.element("div").classes("hr-bar"):
        ui.label("Value" if decoded.text is None else "Value, by the schema of the topic").classes("hr-panel-title")
        ui.space()
        # A tree is copied as the text that it is of.
        parts.copy_button(lambda: shown.get(choice.value) or next(iter(shown.values())), "Copy the value")
        choice = ui.toggle(names, value=names[0]).props("dense unelevated no-caps size=sm padding='4px 10px'")
    if decoded.problem is not None:
        ui.label(f"It does not fit the schema of the topic: {text.visible(decoded.problem)}").classes("hr-warn")
    folding = ui.element("div").classes("hr-value hr-tree").props(f'role=group aria-label="{_TREE}"')
    folding._props["data-tree"] = tree or ""
    body = parts.tagged("pre").classes("hr-value")

    def show_form(name: str) -> None:
        folding.set_visibility(name == _TREE)
        body.set_visibility(name != _TREE)
        body.set_text(shown.get(name, ""))

    choice.on_value_change(lambda event: show_form(event.value))
    show_form(names[0])


def _copy_link(place: str) -> None:
    ui.run_javascript(f"navigator.clipboard.writeText(window.location.origin + {json.dumps(place)})")
    ui.notify("Copied a link to this message", timeout=1_500)

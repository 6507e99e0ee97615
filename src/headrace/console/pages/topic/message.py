"""One message in a panel at the side: where it is, its key and attributes, and its value in every readable form."""

from __future__ import annotations

import json

from nicegui import ui

from headrace.client.message import Message
from headrace.console.messages.payload import forms, preview
from headrace.console.messages.reader import read_range
from headrace.console.messages.tree import tree_of
from headrace.console.view import parts, text
from headrace.console.view.frame import Visit

_TREE = "Tree"


async def open_message(visit: Visit, topic: str, partition: int, offset: int) -> None:
    """Read a message again and show it."""
    found: list[Message] = []
    with visit.reporting():
        found = await read_range(visit.client, topic, partition, offset, offset + 1)
        if not found:
            ui.notify(f"There is no message at offset {offset} of partition {partition}.", type="warning")
            return
    if found:
        show(topic, found[0])


def show(topic: str, message: Message) -> None:
    """Show a message."""
    place = text.topic_page(topic, "messages", partition=message.partition, offset=message.offset)
    with ui.dialog().props("position=right full-height") as dialog, ui.card().classes("hr-side"):
        with ui.element("div").classes("hr-bar"):
            ui.label(f"Partition {message.partition}, offset {message.offset:,}").classes("hr-title")
            ui.space()
            ui.button(icon="link", on_click=lambda: _copy_link(place)).props(
                'flat dense round color=secondary aria-label="Copy a link to this message"'
            )
            ui.button(
                icon="download",
                on_click=lambda: ui.download.content(message.value or b"", f"{message.partition}-{message.offset}.bin"),
            ).props('flat dense round color=secondary aria-label="Download the value"')
            ui.button(icon="close", on_click=dialog.close).props("flat dense round color=secondary aria-label=Close")
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
                "Codec": None
                if message.codec is None
                else f"{message.codec}: it cannot be decoded and is shown as stored",
            }
        )
        if message.attributes:
            ui.label("Attributes").classes("hr-panel-title")
            parts.facts({text.visible(name): preview(value, 2_000) for name, value in message.attributes.items()})
        _show_value(message.value)
    dialog.on_value_change(lambda event: None if event.value else dialog.delete())
    dialog.open()


def _show_value(value: bytes | None) -> None:
    """The value as a folding tree where it is JSON, and as text of several kinds."""
    shown, tree = forms(value), None if value is None else tree_of(value)
    names = [*([_TREE] if tree is not None else []), *shown]
    with ui.element("div").classes("hr-bar"):
        ui.label("Value").classes("hr-panel-title")
        ui.space()
        # A tree is copied as the text that it is of.
        parts.copy_button(lambda: shown.get(choice.value) or next(iter(shown.values())), "Copy the value")
        choice = ui.toggle(names, value=names[0]).props("dense unelevated no-caps size=sm padding='4px 10px'")
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

"""Small parts of pages. Whatever text they are given is shown as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from headrace.console.view import text


def tagged(tag: str, shown: str = "") -> TextElement:
    """An element with text in it."""
    return TextElement(tag=tag, text=shown)


def moment(microseconds: int | None, otherwise: str = "–") -> None:
    """A time in the reader's zone, with UTC on hover."""
    if microseconds is None:
        ui.label(otherwise).classes("hr-muted")
    else:
        element = ui.element("time")
        element._props["datetime"] = text.iso(microseconds)


def command(line: str) -> None:
    """A command with a button that copies it."""
    with ui.element("div").classes("hr-command"):
        tagged("code", line)
        copy_button(lambda: line, "Copy the command")


def copy_button(content: Callable[[], str], label: str) -> ui.button:
    """A button that copies text."""

    def copy() -> None:
        ui.clipboard.write(content())
        ui.notify("Copied", timeout=1_000)

    return ui.button(icon="content_copy", on_click=copy).props(
        f'flat dense round size=sm color=secondary aria-label="{label}"'
    )


@contextmanager
def panel(title: str = "", *, is_sampled: bool = False) -> Iterator[ui.element]:
    """A panel, with a title; one of samples is grey while there are no new ones."""
    with ui.element("div").classes("hr-panel hr-sampled" if is_sampled else "hr-panel") as element:
        if title:
            ui.label(title).classes("hr-panel-title")
        yield element


@contextmanager
def empty(title: str, advice: str = "") -> Iterator[None]:
    """What stands in place of a list that has nothing in it: what that means, and what to do next."""
    with ui.element("div").classes("hr-empty"):
        ui.label(title).classes("hr-panel-title")
        if advice:
            ui.label(text.visible(advice)).classes("hr-muted")
        yield


def title(shown: str) -> ui.label:
    """The title of a page."""
    return ui.label(text.visible(shown)).classes("hr-title").props("role=heading aria-level=1")


class Card:
    """A number with a label and a note."""

    def __init__(self, label: str) -> None:
        with ui.element("div").classes("hr-card"):
            ui.label(label).classes("hr-label")
            self._number = ui.label("–").classes("hr-number")
            self._note = ui.label().classes("hr-note")

    def set(self, number: str, note: str = "") -> None:
        """Show another number."""
        self._number.set_text(number)
        self._note.set_text(text.visible(note))


def facts(values: Mapping[str, Any]) -> None:
    """Names and values, one pair a line; None is left out."""
    with ui.element("div").classes("hr-facts"):
        for name, value in values.items():
            if value is None:
                continue
            ui.label(name)
            if callable(value):
                with ui.element("div"):
                    value()
            else:
                ui.label(text.visible(str(value)))


async def answer_of(dialog: ui.dialog) -> Any:
    """What a dialog is closed with, None if its page is closed before; it is used once."""
    answer = await dialog
    if not dialog.client.is_deleted and not dialog.is_deleted:
        dialog.clear()
        dialog.delete()
    return answer


class Confirmation:
    """A dialog that says what will be lost and continues only when a name was typed."""

    def __init__(self, heading: str, losses: list[str], typed: str, action: str) -> None:
        self._typed = typed
        with ui.dialog() as self.dialog, ui.card().classes("hr-dialog"):
            ui.label(heading).classes("hr-title")
            for loss in losses:
                ui.label(text.visible(loss))
            ui.label("Type the name to confirm:").classes("hr-muted")
            self._input = ui.input(placeholder=text.visible(typed)).props(
                "dense outlined aria-label=Confirmation autofocus"
            )
            self._input.classes("full-width")
            with ui.element("div").classes("hr-bar"):
                ui.space()
                ui.button("Cancel", on_click=lambda: self.dialog.submit(False)).props("flat color=secondary")
                confirm = ui.button(action, on_click=lambda: self.dialog.submit(True)).props(
                    "color=negative unelevated"
                )
            confirm.set_enabled(False)
            self._input.on_value_change(lambda event: confirm.set_enabled(event.value == typed))

    async def ask(self) -> bool:
        """Whether the reader confirmed."""
        return bool(await answer_of(self.dialog))


async def browser_time(value: str | None) -> datetime | None:
    """The time in a field of the browser, which has no zone: the browser knows it."""
    if not value:
        return None
    seconds = await ui.run_javascript(f"new Date({json.dumps(value)}).getTime() / 1000", timeout=5.0)
    return datetime.fromtimestamp(seconds).astimezone() if seconds else None


async def local_time(moment: datetime) -> str:
    """A time as a field of the browser has it, in the reader's zone."""
    script = "const t = new Date({}); return new Date(t - t.getTimezoneOffset() * 60000).toISOString().slice(0, 19)"
    return str(await ui.run_javascript(script.format(round(moment.timestamp() * 1000)), timeout=5.0))

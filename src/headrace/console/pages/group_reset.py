"""The dialog that resets a group: where to, and a preview per partition of what that skips or reads again."""

from __future__ import annotations

from typing import Literal

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.tables import Column, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.groups.moves import Move, Onward, effect_of, moves
from headrace.core.positions import EARLIEST, LATEST, AtOffset, AtTime, Position, microseconds
from headrace.core.reports.descriptions import GroupDescription
from headrace.core.text import counted

Target = Literal["earliest", "latest", "offset", "time", "delta"]

_TARGETS: dict[Target, str] = {
    "earliest": "Earliest message",
    "latest": "Latest: skip everything",
    "offset": "An offset",
    "time": "A time",
    "delta": "Forward or back by a number",
}
_COLUMNS = (
    Column("partition", "Partition"),
    Column("before", "Now at", is_number=True),
    Column("after", "Goes to", is_number=True),
    Column("effect", "Effect"),
)
# As many partitions are listed; the sum is over all.
_ROWS_MAX = 50


class ResetDialog:
    """Asks where a group is to continue, and moves it there."""

    def __init__(self, visit: Visit, group: GroupDescription) -> None:
        self._visit = visit
        self._group = group
        self._moves: list[Move] = []
        with ui.dialog() as self._dialog, ui.card().classes("hr-dialog").style("width: min(680px, 94vw)"):
            ui.label(f"Reset {text.visible(group.name)}").classes("hr-title")
            with ui.element("div").classes("hr-bar"):
                self._target = ui.select(_TARGETS, value="earliest", label="Go to", on_change=self._preview)
                self._target.props("outlined dense options-dense").style("min-width: 230px")
                self._number = ui.number(label="Offset", value=0, precision=0, on_change=self._preview)
                self._number.props("outlined dense debounce=300").style("width: 150px")
                self._time = ui.input(label="Time", on_change=self._preview)
                self._time.props("outlined dense type=datetime-local step=1")
                listed = {-1: "All partitions"} | {each: f"Partition {each}" for each in sorted(group.progress)[:200]}
                self._partition = ui.select(listed, value=-1, on_change=self._preview)
                self._partition.props("outlined dense options-dense aria-label=Partitions").style("min-width: 140px")
            self._sum = ui.label("").classes("hr-panel-title").props("role=status")
            self._table = ShortTable(_COLUMNS)
            if group.members:
                warning = f"{counted(len(group.members), 'member')} will continue at the new offsets at once."
                ui.label(warning).classes("hr-warn hr-small")
            with ui.element("div").classes("hr-bar"):
                ui.space()
                ui.button("Cancel", on_click=lambda: self._dialog.submit(False)).props("flat color=secondary")
                self._confirm = ui.button("Reset", on_click=self._reset).props("unelevated color=negative")

    async def ask(self) -> bool:
        """Whether the group was moved."""
        await self._preview()
        return bool(await parts.answer_of(self._dialog))

    async def _preview(self) -> None:
        target: Target = self._target.value
        self._number.set_visibility(target in ("offset", "delta"))
        self._number.props(f'label="{"Offset" if target == "offset" else "Messages, such as -100"}"')
        self._time.set_visibility(target == "time")
        self._confirm.set_enabled(False)
        chosen = None if self._partition.value < 0 else [int(self._partition.value)]
        with self._visit.reporting():
            bounds = await self._visit.client.offsets(self._group.topic)
            number, at_time = int(self._number.value or 0), dict[int, int]()
            positions: dict[Target, Position | Onward] = {
                "earliest": EARLIEST,
                "latest": LATEST,
                "offset": AtOffset(max(0, number)),
                "delta": Onward(number),
            }
            if target == "time":
                moment = await parts.browser_time(self._time.value)
                if moment is None:
                    self._show([])
                    return
                at_time = await self._visit.client.offsets_at(self._group.topic, moment, chosen)
                positions["time"] = AtTime(microseconds(moment))
            position = positions[target]
            self._show(moves("position", self._group, bounds, position, lambda _, __: at_time, chosen))

    def _show(self, found: list[Move]) -> None:
        self._moves = found
        changed = [move for move in found if move.before != move.after]
        self._sum.set_text(f"The group {effect_of(found)}." if changed else "Nothing changes.")
        changed.sort(key=lambda move: -(move.skipped + move.read_again))
        self._table.show([_row(move) for move in changed[:_ROWS_MAX]])
        self._table.table.set_visibility(bool(changed))
        self._confirm.set_enabled(bool(changed))

    async def _reset(self) -> None:
        with self._visit.reporting():
            offsets = {move.partition: move.after for move in self._moves}
            await self._visit.client.seek(self._group.topic, self._group.name, offsets)
            ui.notify("The group was reset", type="positive")
            self._dialog.submit(True)


def _row(move: Move) -> dict[str, str]:
    return {
        "key": str(move.partition),
        "partition": str(move.partition),
        "before": text.count(move.before),
        "after": text.count(move.after),
        "effect": move.effect,
    }

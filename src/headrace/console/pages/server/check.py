"""The check of the store while its server runs: start one, see how far it is and what it found."""

from __future__ import annotations

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.tables import LEVEL, MONO, Column, Row, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.reports.store_check import Finding, StoreCheck
from headrace.core.text import counted

_COLUMNS = (
    Column("kind", "Kind", slot=LEVEL),
    Column("what", "What", classes="hr-name"),
    Column("file", "File", slot=MONO, classes="hr-name"),
    Column("position", "Byte", is_number=True, is_wide=True),
)
_LEVELS = {"damage": "hr-bad", "gap": "hr-warn", "leftover": ""}
# As many findings are listed; all are counted.
_ROWS_MAX = 200


class StoreCheckPanel:
    """What the last check found, and the button that starts one."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with parts.panel():
            with ui.element("div").classes("hr-bar"):
                ui.label("Check of the store").classes("hr-panel-title")
                ui.space()
                self._button = ui.button("Check now", icon="fact_check", on_click=self._start).props("unelevated dense")
                self._button.props("padding='4px 12px'")
            self._sentence = ui.label().props("role=status")
            self._bar = ui.linear_progress(0.0, show_value=False).props("instant-feedback rounded size=8px")
            self._when = ui.element("div").classes("hr-muted hr-small")
            self._table = ShortTable(_COLUMNS)
            self._advice = ui.element("div").classes("hr-fields")
            with self._advice:
                ui.label("To repair what can be repaired, stop the server and run:").classes("hr-muted")
                parts.command("headrace doctor DIRECTORY --repair")

    async def refresh(self) -> None:
        """Ask for the last check again."""
        self._show(await self._visit.client.last_store_check())

    async def _start(self) -> None:
        with self._visit.reporting():
            self._show(await self._visit.client.check_store())

    def _show(self, check: StoreCheck) -> None:
        is_running = check.state == "running"
        self._button.set_enabled(not is_running and check.state != "impossible")
        self._bar.set_visibility(is_running)
        self._bar.set_value(check.report.topics / check.topics if check.topics else 0.0)
        self._sentence.set_text(text.visible(sentence_of(check)))
        is_bad = check.state == "failed" or check.report.is_damaged
        self._sentence.classes(replace="hr-bad" if is_bad else "hr-good" if check.state == "finished" else "hr-muted")
        self._when.clear()
        if check.ended_us is not None:
            with self._when:
                ui.label("Finished").style("display: inline; margin-right: 5px")
                parts.moment(check.ended_us)
        findings = check.report.findings
        self._table.show([_row(number, each) for number, each in enumerate(findings[:_ROWS_MAX])])
        self._table.table.set_visibility(bool(findings))
        self._advice.set_visibility(check.report.is_damaged)


def sentence_of(check: StoreCheck) -> str:
    """What a check says, in a sentence."""
    report = check.report
    if check.state == "never":
        return (
            "Not checked since the server started. A check reads every frame, index and catalog row once, while the "
            "server keeps running, and repairs nothing."
        )
    if check.state == "impossible":
        return f"It cannot be checked from here: {check.problem}."
    if check.state == "failed":
        return f"The check failed: {check.problem}"
    read = (
        f"{counted(report.segments, 'segment')} with {counted(report.messages, 'message')} ({text.size(report.bytes)})"
    )
    if check.state == "running":
        return f"Checking: {report.topics:,} of {counted(check.topics, 'topic')}, {read} so far."
    damage = sum(each.kind == "damage" for each in report.findings)
    verdict = "No damage." if not damage else f"Damaged in {counted(damage, 'place')}; everything else can be read."
    return f"{verdict} Checked {counted(report.topics, 'topic')}, {read}."


def _row(number: int, found: Finding) -> Row:
    return {
        "key": number,
        "kind": found.kind,
        "level": _LEVELS[found.kind],
        "what": text.visible(found.what),
        "file": text.visible(found.file),
        "position": text.count(found.position),
    }

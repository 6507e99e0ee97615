"""Pipelines that report to this broker: state, speed, lag, the last error, dead letters."""

from __future__ import annotations

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LEVEL, TIME, Column, Row, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.reports.pipelines import PipelineDescription

_DEAD: str = """<q-td :props="props">
  <a v-if="props.row.dead_href" :href="props.row.dead_href">{{ props.value }}</a><span v-else>{{ props.value }}</span>
</q-td>"""
_FLOW: str = """<q-td :props="props"><div>{{ props.row.name }}</div>
  <div class="hr-muted hr-small">{{ props.row.flow }}</div></q-td>"""
_COLUMNS = (
    Column("name", "Pipeline", slot=_FLOW, classes="hr-name"),
    Column("state", "State", slot=LEVEL),
    Column("batch", "Batch", is_number=True, is_wide=True),
    Column("messages", "Messages", is_number=True, is_wide=True),
    Column("rate", "Speed", is_number=True),
    Column("lag", "Lag", is_number=True),
    Column("dead", "Dead letters", is_number=True, slot=_DEAD),
    Column("reported", "Last report", slot=TIME, is_wide=True),
)
_LEVELS = {"running": "hr-good", "starting": "hr-good", "failed": "hr-bad", "lost": "hr-bad"}


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/pipelines", "Pipelines")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    parts.title("Pipelines")
    page = _Pipelines(visit)
    await page.refresh()
    visit.on_sample(page.refresh)


class _Pipelines:
    """The table, and the errors below it."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._table = ShortTable(_COLUMNS)
        self._errors = ui.element("div").classes("full-width")
        self._shown: list[PipelineDescription] | None = None

    async def refresh(self) -> None:
        """List the pipelines again."""
        with self._visit.reporting(in_banner=True):
            found = await self._visit.client.list_pipelines()
            found.sort(key=lambda each: -each.reported_us)
            if found != self._shown:
                self._shown = found
                self._show(found)

    def _show(self, found: list[PipelineDescription]) -> None:
        self._table.show([_row(each) for each in found])
        self._table.table.set_visibility(bool(found))
        self._errors.clear()
        with self._errors:
            for each in found:
                if each.report.error:
                    with parts.panel(text.visible(f"{each.name} of {each.topic}: why its last run failed")):
                        parts.tagged("pre", text.visible(each.report.error)).classes("hr-value")
            if not found:
                advice = "A pipeline on Spark shows up here while it runs, wherever it runs:"
                with parts.panel(), parts.empty("No pipeline has reported yet", advice):
                    parts.command("headrace pipeline run pipeline.toml")


def _row(each: PipelineDescription) -> Row:
    report = each.report
    dead = report.dead_letter_topic
    return {
        "key": f"{each.topic}\0{each.name}",
        "name": text.visible(each.name),
        "flow": text.visible(f"{report.source} → {report.sink} on {report.host}"),
        "state": each.state,
        "level": _LEVELS.get(each.state, ""),
        "batch": text.count(report.batch),
        "messages": text.count(report.messages),
        "rate": text.rate(report.messages_per_second) if each.state == "running" else "–",
        "lag": text.count(report.lag_messages),
        "dead": text.count(report.dead_letters),
        "dead_href": text.topic_page(dead) if dead and report.dead_letters else None,
        "reported": text.iso(each.reported_us),
    }

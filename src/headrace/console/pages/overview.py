"""Overview: what is published and read, how fast, how much is stored, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from headrace.console.monitor.history import History, Key
from headrace.console.monitor.sample import Sample
from headrace.console.view import parts, text
from headrace.console.view.charts import Chart, range_toggle
from headrace.console.view.frame import Frame
from headrace.console.view.tables import LINK, Column, ShortTable
from headrace.console.view.visit import Visit
from headrace.core.errors import HeadraceError, Unauthenticated
from headrace.core.health.findings import Health, HealthFinding, Place, Severity
from headrace.core.health.rules import finding
from headrace.core.rights import Right
from headrace.core.text import counted

_ROWS_MAX = 8

_TOPIC_COLUMNS = (
    Column("name", "Topic", slot=LINK, classes="hr-name"),
    Column("rate_in", "In", is_number=True),
    Column("rate_out", "Out", is_number=True),
    Column("bytes", "Stored", is_number=True, is_wide=True),
)
_GROUP_COLUMNS = (
    Column("name", "Group", slot=LINK, classes="hr-name"),
    Column("topic", "Topic", is_wide=True, classes="hr-name"),
    Column("lag", "Lag", is_number=True),
    Column("age", "Oldest unread", is_number=True),
)


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/", "Overview")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    with ui.element("div").classes("hr-bar"):
        parts.title("Overview")
        ui.space()
        choice = range_toggle()
    page = _Overview(visit, choice)
    choice.on_value_change(page.refresh)
    page.refresh()
    visit.on_sample(page.refresh)
    visit.on_sample(page.refresh_health)
    with visit.reporting(in_banner=True):
        await page.refresh_health()
    with visit.reporting(in_banner=True):
        await page.show_start()


class _Overview:
    """The parts of the page that change."""

    def __init__(self, visit: Visit, choice: ui.toggle) -> None:
        self._visit = visit
        self._choice = choice
        self._start = ui.element("div").classes("full-width")
        self._start.set_visibility(False)
        with ui.element("div").classes("hr-cards hr-sampled"):
            self._in = parts.Card("Published")
            self._out = parts.Card("Read")
            self._latency = parts.Card("Publish latency")
            self._stored = parts.Card("Stored")
            self._topics = parts.Card("Topics")
            self._lag = parts.Card("Largest lag")
        with parts.panel("Needs attention"):
            self._attention = ui.element("div").classes("full-width")
        self._shown: object = None
        self._problems: list[TextElement] = []
        with ui.element("div").classes("hr-grid"):
            with parts.panel("Messages per second"):
                self._messages_chart = Chart("count")
            with parts.panel("Bytes per second"):
                self._bytes_chart = Chart("bytes")
            with parts.panel("Publish latency"):
                self._latency_chart = Chart("seconds")
            with parts.panel():
                with ui.element("div").classes("hr-bar"):
                    ui.label("Bytes stored").classes("hr-panel-title")
                    self._free = ui.label().classes("hr-muted hr-small")
                self._stored_chart = Chart("bytes")
        with ui.element("div").classes("hr-grid"):
            with parts.panel("Groups by lag", is_sampled=True):
                self._group_table = ShortTable(_GROUP_COLUMNS)
                self._no_groups = ui.label("No group reads yet.").classes("hr-muted")
            with parts.panel("Topics by rate", is_sampled=True):
                self._topic_table = ShortTable(_TOPIC_COLUMNS)
                self._no_topics = ui.label("No topics yet.").classes("hr-muted")

    async def show_start(self) -> None:
        """Tell newcomers what to do first."""
        if await self._visit.client.list_topics():
            return
        self._start.set_visibility(True)
        with self._start, parts.panel(), parts.empty("No topics yet", "Create one and publish a message:"):
            parts.command("printf 'hello\\n' | headrace produce hello")
            if self._visit.session.may(Right.MANAGE):
                ui.button("Create a topic", on_click=lambda: ui.navigate.to("/topics")).props("unelevated")

    def refresh(self) -> None:
        """Show the newest sample."""
        visit, history = self._visit, self._visit.history
        sample = history.last
        if sample is None:
            return
        topics = [name for name in sample.topics if visit.session.may_read(name)]
        self._show_cards(history, sample, topics)
        self._show_charts(history, sample, topics)
        self._show_tables(history, sample, topics)

    async def refresh_health(self) -> None:
        """Show what the servers say needs attention."""
        try:
            health = await self._visit.health()
        except Unauthenticated:
            raise
        except HeadraceError as error:
            unknown = finding("not_read", Place("server", name="health"), f"it did not say how it is: {error}")
            health = Health.of("", 0, [unknown])
        self._show_health(health)

    def _show_cards(self, history: History, sample: Sample, topics: list[str]) -> None:
        total = {name: self._sum(name, topics) for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")}
        self._in.set(text.rate(total["messages_in"]), text.byte_rate(total["bytes_in"]))
        self._out.set(text.rate(total["messages_out"]), text.byte_rate(total["bytes_out"]))
        median, high = (history.latency(self._visit.session.may_read, share) for share in (0.5, 0.99))
        note = "nothing published right now" if high is None else f"p99 {text.milliseconds(high)}"
        self._latency.set(text.milliseconds(median), note)
        stored = [sample.topics[name] for name in topics]
        messages = [each.messages for each in stored if each.messages is not None]
        self._stored.set(
            text.size(sum(each.bytes_stored for each in stored)),
            f"{text.short_count(sum(messages))} {'message' if sum(messages) == 1 else 'messages'}",
        )
        free = sample.others.get("headrace_disk_free_bytes")
        if free is not None and self._visit.session.sees_all:
            self._free.set_text(f"{text.size(free)} of the disk are free")
        partitions = int(sum(each.partitions for each in stored))
        # Of very many topics only the busiest have metrics of their own.
        count = max(len(topics), int(sample.others.get("headrace_topics", 0)) if self._visit.session.sees_all else 0)
        is_cut = count > len(topics)
        note = f"numbers of the {len(topics):,} busiest" if is_cut else counted(partitions, "partition")
        self._topics.set(text.count(count), note if partitions else "")
        visible = [(state, key) for key, state in sample.groups.items() if self._visit.session.may_read(key[0])]
        worst = max(visible, key=lambda each: each[0].lag_messages, default=None)
        if worst is not None:
            self._lag.set(
                text.count(worst[0].lag_messages), worst[1][1] if worst[0].lag_messages else "all groups are up to date"
            )

    def _sum(self, name: str, topics: Iterable[str]) -> float:
        history = self._visit.history
        if self._visit.session.sees_all:
            return history.value(name)
        return sum(history.value(name, topic) for topic in topics)

    def _show_health(self, health: Health) -> None:
        # What a visitor is about to copy stays where it is: only numbers and ages change with each sample.
        shown = health.covers_store, [(each.rule, each.severity, each.place) for each in health.findings]
        if shown == self._shown:
            for label, each in zip(self._problems, health.findings, strict=True):
                label.set_text(f": {text.visible(each.problem)}")
            return
        self._shown = shown
        self._attention.clear()
        with self._attention:
            if health.state == "fine":
                where = "" if health.covers_store else " in the topics that you may read"
                with ui.element("div").classes("hr-finding"):
                    ui.icon("check_circle").classes("hr-good")
                    ui.label(f"Nothing{where}.").classes("hr-muted")
            self._problems = [_show_finding(each) for each in health.findings]
            if health.omitted:
                ui.label(f"And {counted(health.omitted, 'finding')} more.").classes("hr-muted")

    def _show_charts(self, history: History, sample: Sample, topics: list[str]) -> None:
        seconds, now = float(self._choice.value), sample.time

        def line(name: str) -> list[tuple[float, float | None]]:
            keys: list[Key] = [(name,)] if self._visit.session.sees_all else [(name, topic) for topic in topics]
            return history.points(keys, seconds)

        self._messages_chart.show({"in": line("messages_in"), "out": line("messages_out")}, seconds, now)
        self._bytes_chart.show({"in": line("bytes_in"), "out": line("bytes_out")}, seconds, now)
        # The history has it over all topics only, and it tells when others publish.
        names = ("p50", "p99") if self._visit.session.sees_all else ()
        latency = {name: history.points([(f"publish_{name}",)], seconds) for name in names}
        self._latency_chart.show(latency, seconds, now)
        self._stored_chart.show({"stored": line("bytes_stored")}, seconds, now)

    def _show_tables(self, history: History, sample: Sample, topics: list[str]) -> None:
        busy = sorted(topics, key=lambda name: (-history.value("messages_in", name), name))[:_ROWS_MAX]
        self._topic_table.show(
            [
                {
                    "key": name,
                    "name": text.visible(name),
                    "href": text.topic_page(name),
                    "rate_in": text.rate(history.value("messages_in", name)),
                    "rate_out": text.rate(history.value("messages_out", name)),
                    "bytes": text.size(sample.topics[name].bytes_stored),
                }
                for name in busy
            ]
        )
        groups = [(key, state) for key, state in sample.groups.items() if self._visit.session.may_read(key[0])]
        groups.sort(key=lambda each: (-each[1].lag_messages, each[0]))
        self._group_table.show(
            [
                {
                    "key": f"{topic}\0{group}",
                    "name": text.visible(group),
                    "href": text.group_page(topic, group),
                    "topic": text.visible(topic),
                    "lag": text.count(state.lag_messages),
                    "age": text.duration(state.lag_seconds) if state.lag_messages else "–",
                }
                for (topic, group), state in groups[:_ROWS_MAX]
            ]
        )
        self._no_groups.set_visibility(not groups)
        self._no_topics.set_visibility(not busy)


# The icon of a severity, and its colour.
_ICONS: Final[dict[Severity, tuple[str, str]]] = {
    "critical": ("error", "hr-bad"),
    "warning": ("warning", "hr-warn"),
    "unknown": ("help", "hr-muted"),
}


def _show_finding(finding: HealthFinding) -> TextElement:
    """Draw a finding; returns the element with the problem."""
    icon, colour = _ICONS[finding.severity]
    with ui.element("div").classes("hr-finding"):
        ui.icon(icon).classes(colour).props(f'role=img aria-label="{finding.severity}"')
        with ui.element("div"):
            with ui.element("div"):
                name, target = text.visible(_capital(str(finding.place))), _page(finding.place)
                if target is None:
                    parts.tagged("span", name)
                else:
                    ui.link(name, target)
                problem = parts.tagged("span", f": {text.visible(finding.problem)}")
            ui.label(finding.advice).classes("hr-muted hr-small")
            if finding.command:
                parts.command(text.visible(finding.command))
    return problem


def _page(place: Place) -> str | None:
    """The page of a place."""
    if place.kind == "group":
        return text.group_page(place.topic, place.group)
    if place.kind == "topic":
        return text.topic_page(place.topic)
    return {"pipeline": "/pipelines", "token": "/access"}.get(place.kind)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]

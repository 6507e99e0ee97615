"""Overview: what is published and read, how fast, how much is stored, and what needs attention."""

from __future__ import annotations

import time
from collections.abc import Iterable

from nicegui import ui

from headrace.console.monitor.history import History, Key
from headrace.console.monitor.sample import Sample
from headrace.console.view import parts, text
from headrace.console.view.charts import Chart, range_toggle
from headrace.console.view.frame import Frame, Visit
from headrace.console.view.tables import LINK, Column, ShortTable
from headrace.core.rights import Right
from headrace.core.text import counted
from headrace.wire.attention import Concern, ConcernPlace

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
    with visit.reporting(in_banner=True):
        await page.show_start()


class _Overview:
    """The parts of the page that change."""

    def __init__(self, visit: Visit, choice: ui.toggle) -> None:
        self._visit = visit
        self._choice = choice
        self._start = ui.element("div").classes("full-width")
        self._start.set_visibility(False)
        with ui.element("div").classes("hr-cards"):
            self._in = parts.Card("Published")
            self._out = parts.Card("Read")
            self._latency = parts.Card("Publish latency")
            self._stored = parts.Card("Stored")
            self._topics = parts.Card("Topics")
            self._lag = parts.Card("Largest lag")
        with parts.panel("Needs attention"):
            self._attention = ui.element("div").classes("full-width")
        self._found: list[Concern] | None = None
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
            with parts.panel("Groups by lag"):
                self._group_table = ShortTable(_GROUP_COLUMNS)
                self._no_groups = ui.label("No group reads yet.").classes("hr-muted")
            with parts.panel("Topics by rate"):
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
        visit.say(_staleness(visit.poller.problem, visit.poller.silent))
        sample = history.last
        if sample is None:
            return
        topics = [name for name in sample.topics if visit.session.may_read(name)]
        self._show_cards(history, sample, topics)
        session = visit.session
        self._show_attention(
            visit.poller.attention.findings(session.may_read, session.sees_all, session.caller.expires_us, time.time())
        )
        self._show_charts(history, sample, topics)
        self._show_tables(history, sample, topics)

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

    def _show_attention(self, found: list[Concern]) -> None:
        if found == self._found:
            return
        self._found = found
        self._attention.clear()
        with self._attention:
            if not found:
                with ui.element("div").classes("hr-finding"):
                    ui.icon("check_circle").classes("hr-good")
                    ui.label("Nothing. No topic fails, no group falls behind, no damage was found.").classes("hr-muted")
            for finding in found:
                is_critical = finding.severity == "critical"
                with ui.element("div").classes("hr-finding"):
                    ui.icon("error" if is_critical else "warning").classes("hr-bad" if is_critical else "hr-warn")
                    with ui.element("div"):
                        with ui.element("div"):
                            name, target = _named(finding.place)
                            if target is not None:
                                ui.link(text.visible(name), target)
                            problem = text.visible(finding.problem)
                            parts.tagged("span", ": " + problem if name else _capital(problem))
                        ui.label(finding.advice).classes("hr-muted hr-small")

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


def _staleness(problem: str | None, silent: list[str]) -> str | None:
    """What keeps the page from being up to date."""
    if problem is not None:
        return f"No new samples: {problem}."
    if silent:
        return f"No answer from {', '.join(silent)}. What it did last counts until it is back, or is no longer listed."
    return None


def _named(place: ConcernPlace) -> tuple[str, str | None]:
    """How a place is called, and its page."""
    if place.kind == "group":
        return f"Group {place.group} of {place.topic}", text.group_page(place.topic, place.group)
    if place.kind == "topic":
        return f"Topic {place.topic}", text.topic_page(place.topic)
    if place.kind == "pipeline":
        return f"Pipeline {place.pipeline} of {place.topic}", "/pipelines"
    return "", None


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]

"""A topic in numbers: how many messages, how fast, how long they are kept, who lags; and charts of that over time."""

from __future__ import annotations

from nicegui import ui

from headrace.console.monitor.history import Key
from headrace.console.view import parts, text
from headrace.console.view.charts import COLORS, Chart, range_toggle
from headrace.console.view.visit import Visit
from headrace.core.amounts import BYTES, amount_typed
from headrace.core.reports.descriptions import TopicDescription


class Figures:
    """The numbers above the tabs."""

    def __init__(self, visit: Visit, topic: TopicDescription) -> None:
        self._visit = visit
        self._topic = topic
        with ui.element("div").classes("hr-cards hr-figures"):
            self._messages, self._stored = parts.Card("Messages"), parts.Card("Stored")
            with ui.element("div").classes("hr-cards hr-sampled"):
                self._in, self._out = parts.Card("Published"), parts.Card("Read")
            self._kept, self._lag = parts.Card("Kept for"), parts.Card("Worst lag")
        settings = topic.settings
        size = f"at most {amount_typed(settings.retention_bytes, BYTES)}" if settings.retention_bytes else ""
        archive = "archived" if settings.archive == "on" else ""
        self._kept.set(text.duration(settings.retention_seconds), ", ".join(filter(None, (size, archive))))
        self._show(sum(end - start for start, end in topic.offsets.values()), topic.bytes_stored)
        visit.on_sample(self.refresh)

    def refresh(self) -> None:
        """Show the newest sample; of very many topics only the busiest are in one."""
        sample = self._visit.history.last
        found = sample.topics.get(self._topic.name) if sample is not None else None
        if found is not None and found.messages is not None:
            self._show(found.messages, found.bytes_stored)

    def _show(self, messages: float, stored: float) -> None:
        name, history = self._topic.name, self._visit.history
        self._messages.set(text.count(messages), f"in {text.count(self._topic.partitions)} partitions")
        self._stored.set(text.size(stored), f"{text.size(stored / messages)} a message" if messages else "")
        for card, way in ((self._in, "in"), (self._out, "out")):
            rate, volume = history.value(f"messages_{way}", name), history.value(f"bytes_{way}", name)
            card.set(text.rate(rate), text.byte_rate(volume))
        lags = _lags(self._visit, name)
        worst = max(lags, key=lambda group: lags[group], default=None)
        if worst is None:
            self._lag.set("–", "no group reads it" if not self._topic.groups else "")
        else:
            self._lag.set(text.count(lags[worst]), worst if lags[worst] else "all groups are up to date")


def _lags(visit: Visit, topic: str) -> dict[str, float]:
    sample = visit.history.last
    groups = sample.groups if sample is not None else {}
    return {group: state.lag_messages for (name, group), state in groups.items() if name == topic}


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab with the charts."""
    page = _Charts(visit, topic.name)
    page.refresh()
    visit.on_sample(page.refresh)


class _Charts:
    """The charts of a topic."""

    def __init__(self, visit: Visit, topic: str) -> None:
        self._visit = visit
        self._topic = topic
        with ui.element("div").classes("hr-bar"):
            ui.space()
            self._range = range_toggle()
        self._range.on_value_change(self.refresh)
        with ui.element("div").classes("hr-grid"):
            with parts.panel("Messages per second"):
                self._messages = Chart("count")
            with parts.panel("Bytes per second"):
                self._bytes = Chart("bytes")
            with parts.panel("Lag in messages, of the groups that lag most"):
                self._lag = Chart("count")
            with parts.panel("Bytes stored"):
                self._stored = Chart("bytes")

    def refresh(self) -> None:
        """Show the newest samples."""
        history, topic, seconds = self._visit.history, self._topic, float(self._range.value)
        if history.last is None:
            return
        now = history.last.time

        def lines(**keys: Key) -> dict[str, list[tuple[float, float | None]]]:
            return {name: history.points([key], seconds) for name, key in keys.items()}

        both = {name: {"in": (f"{name}_in", topic), "out": (f"{name}_out", topic)} for name in ("messages", "bytes")}
        self._messages.show(lines(**both["messages"]), seconds, now)
        self._bytes.show(lines(**both["bytes"]), seconds, now)
        self._stored.show(lines(stored=("bytes_stored", topic)), seconds, now)
        lags = _lags(self._visit, topic)
        most = sorted(lags, key=lambda group: (-lags[group], group))[: len(COLORS)]
        self._lag.show({group: history.points([("lag", topic, group)], seconds) for group in most}, seconds, now)

"""Line charts over time, drawn by ECharts in the browser; its time axis is in the reader's zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from nicegui import ui

from headrace.console.monitor.history import Points

Unit = Literal["count", "bytes", "seconds"]

RANGES: Final = {900: "15 min", 3600: "1 h", 6 * 3600: "6 h", 24 * 3600: "24 h"}
# A chart is never narrower than this.
_SECONDS_MIN: Final = 60.0
# Of as many lines.
COLORS: Final = ("#0e8fb5", "#e08a1e", "#4a9d5b", "#a05fb4")
# How a number is written on an axis; evaluated in the browser, and fixed here.
_FORMATS: Final[dict[Unit, str]] = {
    "count": "(v) => v >= 1e6 ? +(v / 1e6).toFixed(1) + 'M' : v >= 1e3 ? +(v / 1e3).toFixed(1) + 'k'"
    " : +(+v).toFixed(1)",
    "bytes": "(v) => v >= 1073741824 ? +(v / 1073741824).toFixed(1) + ' GiB'"
    " : v >= 1048576 ? +(v / 1048576).toFixed(1) + ' MiB'"
    " : v >= 1024 ? +(v / 1024).toFixed(1) + ' KiB' : +(+v).toFixed(0) + ' B'",
    "seconds": "(v) => v >= 1 ? +(+v).toFixed(1) + ' s' : +(v * 1e3).toFixed(1) + ' ms'",
}


class Chart:
    """A chart of some lines."""

    def __init__(self, unit: Unit) -> None:
        number = _FORMATS[unit]
        self._element = ui.echart(
            {
                "animation": False,
                "color": list(COLORS),
                "grid": {"left": 8, "right": 14, "top": 30, "bottom": 4, "containLabel": True},
                "legend": {
                    "top": 0,
                    "left": 0,
                    "icon": "roundRect",
                    "itemWidth": 10,
                    "itemHeight": 4,
                    "textStyle": _TEXT,
                },
                "tooltip": {"trigger": "axis", ":valueFormatter": f"(v) => v == null ? '–' : ({number})(v)"},
                "xAxis": {
                    "type": "time",
                    "axisLine": _LINE,
                    "axisLabel": {**_TEXT, "hideOverlap": True},
                    "splitLine": {"show": False},
                },
                "yAxis": {
                    "type": "value",
                    "min": 0,
                    "splitNumber": 3,
                    "splitLine": _LINE,
                    "axisLabel": {**_TEXT, ":formatter": number},
                },
                "series": [],
            }
        ).classes("hr-chart")

    def show(self, lines: Mapping[str, Points], seconds: float, now: float) -> None:
        """Show these lines over the last seconds, or since the first sample."""
        options = self._element.options
        first = min((points[0][0] for points in lines.values() if points), default=now)
        start = max(now - seconds, min(first, now - _SECONDS_MIN))
        options["xAxis"]["min"], options["xAxis"]["max"] = start * 1000, now * 1000
        options["series"] = [_series(name, points) for name, points in lines.items()]
        self._element.update()


def _series(name: str, points: Points) -> dict[str, Any]:
    data = [[time * 1000, value] for time, value in points]
    return {"name": name, "type": "line", "showSymbol": False, "lineStyle": {"width": 1.6}, "data": data}


def range_toggle() -> ui.toggle:
    """The choice of how far back charts reach."""
    return ui.toggle(RANGES, value=900).props("dense unelevated no-caps size=sm padding='4px 10px'")


# In the colour of notes on this page: a canvas knows no variables of styles.
_NOTE: Final = "getComputedStyle(document.body).getPropertyValue('--hr-muted').trim()"
_TEXT: Final[dict[str, Any]] = {":color": _NOTE, "fontSize": 11}
_LINE: Final[dict[str, Any]] = {"lineStyle": {"color": "rgba(125, 145, 155, 0.25)"}}

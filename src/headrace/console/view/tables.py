"""Tables: one for short lists, one whose rows are sorted and paged here, so that any number of rows stays usable.

Rows are dictionaries of text. A cell is drawn as text by Vue; a column may name another way to draw it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui
from nicegui.events import GenericEventArguments

Row = dict[str, Any]

# How cells are drawn, as Vue templates; the values of rows are text in all of them.
LINK: Final = """<q-td :props="props">
  <a v-if="props.row.href" :href="props.row.href">{{ props.value }}</a><span v-else>{{ props.value }}</span>
</q-td>"""
TIME: Final = """<q-td :props="props">
  <time v-if="props.value" :datetime="props.value"></time><span v-else class="hr-muted">–</span>
</q-td>"""
MONO: Final = """<q-td :props="props"><span class="hr-mono">{{ props.value }}</span></q-td>"""
LEVEL: Final = """<q-td :props="props"><span :class="props.row.level">{{ props.value }}</span></q-td>"""
TOPIC_LINK: Final = """<q-td :props="props"><a :href="props.row.topic_href">{{ props.value }}</a></q-td>"""
SKEW: Final = """<q-td :props="props">
  <div class="hr-skew" :title="props.value"><div :style="{ width: props.row.skew_width }"></div></div>
</q-td>"""


@dataclass(frozen=True)
class Column:
    """A column; `slot` is how its cells are drawn, a wide one is left out on a phone."""

    name: str
    label: str
    is_number: bool = False
    is_sortable: bool = False
    is_wide: bool = False
    slot: str | None = None
    classes: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As Quasar wants it."""
        hidden = "hr-wide" if self.is_wide else ""
        return {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "align": "right" if self.is_number else "left",
            "sortable": self.is_sortable,
            "classes": f"{hidden} {self.classes}".strip(),
            "headerClasses": hidden,
        }


def _draw(columns: Sequence[Column], key: str, pagination: dict[str, Any] | None) -> ui.table:
    table = ui.table(columns=[column.as_dict() for column in columns], rows=[], row_key=key, pagination=pagination)
    table.classes("hr-table").props("flat dense hide-no-data")
    for column in columns:
        if column.slot is not None:
            table.add_slot(f"body-cell-{column.name}", column.slot)
    return table


class ShortTable:
    """All rows of a short list."""

    def __init__(self, columns: Sequence[Column], key: str = "key") -> None:
        self.table = _draw(columns, key, None)

    def show(self, rows: list[Row]) -> None:
        """Show these rows."""
        if rows != self.table.rows:
            self.table.rows = rows


@dataclass(frozen=True)
class PageOrder:
    """Which rows are wanted: from, how many, in which order."""

    first: int
    count: int
    sort: str
    descending: bool


Load = Callable[[PageOrder], Awaitable[tuple[list[Row], int]]]


class PagedTable:
    """One page of a long list; `load` sorts and cuts it."""

    def __init__(
        self,
        columns: Sequence[Column],
        load: Load,
        *,
        key: str = "key",
        sort: str = "name",
        descending: bool = False,
        per_page: int = 50,
    ) -> None:
        self._load = load
        pagination = {
            "sortBy": sort,
            "descending": descending,
            "page": 1,
            "rowsPerPage": per_page,
            "rowsNumber": 0,
        }
        self.table = _draw(columns, key, pagination)
        self.table.props(':rows-per-page-options="[25, 50, 100]" binary-state-sort')
        self.table.on("request", self._on_request)
        self.total = 0

    async def _on_request(self, event: GenericEventArguments) -> None:
        asked = event.args["pagination"]
        self.table.pagination = {**self.table.pagination, **asked, "rowsNumber": self.total}
        await self.refresh()

    async def refresh(self, *, first_page: bool = False) -> None:
        """Load the rows of the page again."""
        pagination = dict(self.table.pagination)
        if first_page:
            pagination["page"] = 1
        # A browser may send anything, and each row may be a call to the broker.
        per_page = min(100, max(0, int(pagination["rowsPerPage"])) or 100)
        order = PageOrder(
            max(0, int(pagination["page"]) - 1) * per_page,
            per_page,
            str(pagination["sortBy"]),
            bool(pagination["descending"]),
        )
        rows, self.total = await self._load(order)
        pagination |= {"rowsNumber": self.total, "rowsPerPage": per_page}
        if pagination != self.table.pagination:
            self.table.pagination = pagination
        if rows != self.table.rows:
            self.table.rows = rows
        self.table.props["hide-pagination"] = self.total <= min(25, per_page)
        self.table.update()


def cut(rows: list[Any], order: PageOrder, value: Callable[[Any], Any]) -> list[Any]:
    """The rows of one page, sorted by a value."""
    ordered = sorted(rows, key=value, reverse=order.descending)
    return ordered[order.first : order.first + order.count]

"""What the log of a Delta table says of the values in a file, so that queries skip files: least, largest, and NULLs.

It is read from the footer of the file. Only what is sure is said: numbers with a fraction are left out, since a footer
does not count NaN, which Spark takes for the largest of all; so are long largest texts, and fields within columns.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

# As many columns, from the first, as Delta itself describes, and as much of a text.
_COLUMNS_MAX: Final = 32
_TEXT_MAX: Final = 32


class _Chunk(NamedTuple):
    """What the footer says of a column in a row group; bounds: the least and the largest value, if there are any."""

    values: int
    nulls: int | None
    bounds: tuple[Any, Any] | None


def statistics_of(file: pq.FileMetaData) -> str:
    """The statistics of a file as its entry in the log has them."""
    least, largest, nulls = {}, {}, {}
    for place in range(min(file.num_columns, _COLUMNS_MAX)):
        name = file.schema.column(place).path
        chunks = [_chunk(file, group, place) for group in range(file.num_row_groups)]
        # A dot may be part of the name, or lead to a field.
        if "." in name or None in chunks:
            continue
        known = [each for each in chunks if each is not None]
        if all(each.nulls is not None for each in known):
            nulls[name] = sum(each.nulls or 0 for each in known)
        bounds = [each.bounds for each in known if each.bounds is not None]
        if not bounds or any(each.bounds is None and each.values for each in known):
            continue
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        if _is_sure(low):
            least[name] = _shown(low[:_TEXT_MAX] if isinstance(low, str) else low)
            if not isinstance(high, str) or len(high) <= _TEXT_MAX:
                largest[name] = _shown(high)
    told = {"numRecords": file.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls}
    return json.dumps(told)


def _chunk(file: pq.FileMetaData, group: int, place: int) -> _Chunk | None:
    # Statistics are read while their column is there: pyarrow 26 does not keep it alive for them.
    rows = file.row_group(group)
    column = rows.column(place)
    found = column.statistics if column.is_stats_set else None
    if found is None:
        return None
    bounds = (found.min, found.max) if found.has_min_max else None
    return _Chunk(found.num_values, found.null_count if found.has_null_count else None, bounds)


def _is_sure(value: object) -> bool:
    return isinstance(value, int | str | date) and not isinstance(value, bool)


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return text.isoformat(timespec="microseconds") + ("" if value.tzinfo is None else "Z")
    return value.isoformat() if isinstance(value, date) else value

"""Filters that Spark offers, as bounds on partition, offset and timestamp; what cannot be one is left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.core.positions import microseconds
from headrace.spark.read.splits import Ranges


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a row must satisfy to pass all filters that are understood. Ends are exclusive."""

    partitions: frozenset[int] | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    time_start_us: int | None = None
    time_end_us: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        """The bounds of filters that all must hold."""
        bounds = cls()
        for given in filters:
            bounds = _with(bounds, given)
        return bounds

    def within_partitions(self, allowed: Iterable[int]) -> Bounds:
        """Only some partitions."""
        named = frozenset(allowed)
        return replace(self, partitions=named if self.partitions is None else self.partitions & named)


def narrowed(ranges: Ranges, bounds: Bounds, offset_at: Callable[[int, int], int]) -> Ranges:
    """The part of some ranges that can pass.

    offset_at: the first offset of a partition at or after a time.
    """
    result: Ranges = {}
    for partition, (start, end) in ranges.items():
        if bounds.partitions is not None and partition not in bounds.partitions:
            continue
        if bounds.offset_start is not None:
            start = max(start, bounds.offset_start)
        if bounds.offset_end is not None:
            end = min(end, bounds.offset_end)
        if bounds.time_start_us is not None and start < end:
            start = max(start, offset_at(partition, bounds.time_start_us))
        if bounds.time_end_us is not None and start < end:
            end = min(end, offset_at(partition, bounds.time_end_us))
        if start < end:
            result[partition] = (start, end)
    return result


def _with(bounds: Bounds, given: Filter) -> Bounds:
    name = _column(given)
    if name == "partition":
        return _with_partitions(bounds, given)
    if name == "offset":
        start, end = _interval(given, lambda value: value)
        return replace(
            bounds, offset_start=_later(bounds.offset_start, start), offset_end=_earlier(bounds.offset_end, end)
        )
    if name == "timestamp":
        start, end = _interval(given, _time_us)
        return replace(
            bounds, time_start_us=_later(bounds.time_start_us, start), time_end_us=_earlier(bounds.time_end_us, end)
        )
    return bounds


def _column(given: Filter) -> str | None:
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return str(path[0]).lower() if len(path) == 1 else None


def _with_partitions(bounds: Bounds, given: Filter) -> Bounds:
    if isinstance(given, EqualTo | EqualNullSafe):
        return bounds.within_partitions({given.value})
    if isinstance(given, In):
        return bounds.within_partitions(value for value in given.value if value is not None)
    return bounds


def _interval(given: Filter, number: Callable[[Any], int]) -> tuple[int | None, int | None]:
    """The least number that can pass and the one after the greatest."""
    if isinstance(given, EqualTo | EqualNullSafe) and given.value is not None:
        return number(given.value), number(given.value) + 1
    if isinstance(given, In):
        numbers = [number(value) for value in given.value if value is not None]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    if isinstance(given, GreaterThan):
        return number(given.value) + 1, None
    if isinstance(given, GreaterThanOrEqual):
        return number(given.value), None
    if isinstance(given, LessThan):
        return None, number(given.value)
    if isinstance(given, LessThanOrEqual):
        return None, number(given.value) + 1
    return None, None


def _time_us(value: datetime) -> int:
    return max(0, microseconds(value if value.tzinfo is not None else value.replace(tzinfo=UTC)))


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)

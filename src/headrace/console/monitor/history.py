"""The history of samples: rates and gauges as series, in rings of a fixed size. Pure; one thread but for `values_of`.

Two rings: one keeps every sample for the charts of 15 minutes and an hour, one keeps a mean per minute for up to
24 hours. All series of a ring share its times, so a series is one array of 32-bit floats and memory has a bound:
`SERIES_MAX` series of about 8 KB, and half as many of partitions. Series beyond the bound are not kept; totals always
are.

A series is named by a tuple: ("messages_in",) is a total, ("messages_in", topic) one topic, ("lag", topic, group) a
group, ("lag", topic, group, partition) a partition of it, kept from when it first lags. A counter that went down (a
server restarted) gives no rate for that interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, KeysView
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.console.monitor.sample import Sample, TopicSample, quantile

Key = tuple[str, ...]
Points = list[tuple[float, float | None]]

FINE_SECONDS: Final = 3600.0
COARSE_SECONDS: Final = 24 * 3600.0
COARSE_STEP_SECONDS: Final = 60.0
SERIES_MAX: Final = 4_000
PARTITION_SERIES_MAX: Final = SERIES_MAX // 2
# How many parts the name of a series of one partition has.
_OF_PARTITION: Final = 4
# More points than this no chart can show.
POINTS_MAX: Final = 400

RATES: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")


class _Ring:
    """Values of many series at common times; the oldest are overwritten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._times = np.full(size, np.nan)
        self._series: dict[Key, npt.NDArray[np.float32]] = {}
        self._partitions = 0
        self._next = 0

    @property
    def keys(self) -> KeysView[Key]:
        """The series that are kept."""
        return self._series.keys()

    def append(self, time: float, values: dict[Key, float]) -> None:
        place = self._next % self._size
        self._times[place] = time
        for series in self._series.values():
            series[place] = np.nan
        for key, value in values.items():
            if key not in self._series:
                if not self._has_room(key, value):
                    continue
                self._series[key] = np.full(self._size, np.nan, np.float32)
                self._partitions += len(key) == _OF_PARTITION
            self._series[key][place] = value
        self._next += 1
        if self._next % self._size == 0:
            self._forget()

    def _has_room(self, key: Key, value: float) -> bool:
        if len(key) == _OF_PARTITION:
            return value > 0 and self._partitions < PARTITION_SERIES_MAX
        return len(key) == 1 or len(self._series) - self._partitions < SERIES_MAX

    def _forget(self) -> None:
        """Drop series that have no value in the whole ring: their topic was deleted."""
        self._series = {key: series for key, series in self._series.items() if not np.isnan(series).all()}
        self._partitions = sum(len(key) == _OF_PARTITION for key in self._series)

    def read(self, keys: Iterable[Key], since: float) -> Points:
        """The sum of some series from a time on, oldest first."""
        found = [self._series[key] for key in keys if key in self._series]
        order = np.arange(self._next - min(self._next, self._size), self._next) % self._size
        order = order[self._times[order] >= since]
        if not found or not len(order):
            return []
        stacked = np.stack([series[order] for series in found])
        summed = np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))
        times, step = self._times[order], math.ceil(len(order) / POINTS_MAX)
        return [
            (float(time), None if math.isnan(value) else float(value))
            for time, value in zip(times[::step], _means(summed, step), strict=True)
        ]


def _means(values: npt.NDArray[np.floating], step: int) -> npt.NDArray[np.floating]:
    """The mean of every `step` values, without those that are missing."""
    if step == 1:
        return values
    padded = np.pad(values.astype(float), (0, -len(values) % step), constant_values=np.nan).reshape(-1, step)
    counted = (~np.isnan(padded)).sum(axis=1)
    means: npt.NDArray[np.floating] = np.where(counted, np.nansum(padded, axis=1) / np.maximum(counted, 1), np.nan)
    return means


class History:
    """What the samples of the last day say."""

    def __init__(self, poll_seconds: float) -> None:
        self._fine = _Ring(max(2, math.ceil(FINE_SECONDS / poll_seconds)))
        self._coarse = _Ring(math.ceil(COARSE_SECONDS / COARSE_STEP_SECONDS))
        self._minute: dict[Key, tuple[float, int]] = {}
        self._minute_started: float | None = None
        self.last: Sample | None = None
        # Latencies of publishing between the last two samples: by topic, cumulative counts by upper bound.
        self.published: dict[str, dict[float, float]] = {}
        self.values: dict[Key, float] = {}

    def values_of(self, sample: Sample) -> dict[Key, float]:
        """The value of every series at the next sample. Changes nothing, and may run in another thread."""
        return _values(self.last, sample)

    def add(self, sample: Sample, values: dict[Key, float] | None = None) -> None:
        """Append a sample."""
        self.values = values = self.values_of(sample) if values is None else values
        self.published = _published_since(self.last, sample)
        _keep_commits(self.last, sample)
        self.last = sample
        self._fine.append(sample.time, values)
        if self._minute_started is None:
            self._minute_started = sample.time
        for key in self._fine.keys & values.keys():
            total, count = self._minute.get(key, (0.0, 0))
            self._minute[key] = (total + values[key], count + 1)
        if sample.time - self._minute_started >= COARSE_STEP_SECONDS:
            self._coarse.append(sample.time, {key: total / count for key, (total, count) in self._minute.items()})
            self._minute.clear()
            self._minute_started = sample.time

    def points(self, keys: Iterable[Key], seconds: float) -> Points:
        """The sum of some series over the last seconds, at most `POINTS_MAX` points."""
        if self.last is None:
            return []
        keys = list(keys)
        since = self.last.time - seconds
        if seconds <= FINE_SECONDS:
            return self._fine.read(keys, since)
        coarse = self._coarse.read(keys, since)
        newest = coarse[-1][0] if coarse else since
        # What has not filled a minute yet comes from the other ring.
        return coarse + [point for point in self._fine.read(keys, max(since, newest)) if point[0] > newest]

    def value(self, *key: str) -> float:
        """The newest value of a series, 0 if there is none."""
        return self.values.get(key, 0.0)

    def latency(self, may_see: Callable[[str], bool], share: float) -> float | None:
        """A quantile of the publish latency between the last two samples, over some topics; None without any."""
        return quantile(_merged(buckets for topic, buckets in self.published.items() if may_see(topic)), share)


def _values(before: Sample | None, now: Sample) -> dict[Key, float]:
    values: dict[Key, float] = {}
    seconds = 0.0 if before is None else now.time - before.time
    for name, topic in now.topics.items():
        values["bytes_stored", name] = topic.bytes_stored
        old = before.topics.get(name) if before is not None else None
        if seconds > 0 and before is not None:
            _add_rates(values, name, old or TopicSample(), topic, seconds)
    for (topic_name, group), state in now.groups.items():
        values["lag", topic_name, group] = state.lag_messages
        values["lag_seconds", topic_name, group] = state.lag_seconds
    for place, lag in now.partition_lags.items():
        values["lag", *place] = lag
    values["bytes_stored",] = sum(topic.bytes_stored for topic in now.topics.values())
    if seconds > 0:
        published = _merged(_published_since(before, now).values())
        for rate in RATES:
            values[rate,] = sum(values.get((rate, name), 0.0) for name in now.topics)
        for share, key in ((0.5, "publish_p50"), (0.99, "publish_p99")):
            found = quantile(published, share)
            if found is not None:
                values[key,] = found
    return values


def _add_rates(values: dict[Key, float], name: str, old: TopicSample, new: TopicSample, seconds: float) -> None:
    for rate in RATES:
        grown = getattr(new, rate) - getattr(old, rate)
        if grown >= 0:
            values[rate, name] = grown / seconds


def _published_since(before: Sample | None, now: Sample) -> dict[str, dict[float, float]]:
    """The latencies between two samples by topic; of topics where nothing was published there is nothing.

    A count that went down is of a server that restarted: what it counted since then is all there is.
    """
    grown: dict[str, dict[float, float]] = {}
    for topic, buckets in now.publish.items() if before is not None else ():
        old = before.publish.get(topic, {}) if before is not None else {}
        if any(count < old.get(bound, 0.0) for bound, count in buckets.items()):
            old = {}
        since = {bound: count - old.get(bound, 0.0) for bound, count in buckets.items()}
        if any(since.values()):
            grown[topic] = since
    return grown


def _keep_commits(before: Sample | None, now: Sample) -> None:
    """A commit stays the last one of its group when the server that counted it was removed."""
    for key, group in now.groups.items() if before is not None else ():
        old = before.groups.get(key) if before is not None else None
        if old is not None:
            group.last_commit = max(group.last_commit, old.last_commit)


def _merged(histograms: Iterable[dict[float, float]]) -> dict[float, float]:
    merged: dict[float, float] = {}
    for buckets in histograms:
        for bound, count in buckets.items():
            merged[bound] = merged.get(bound, 0.0) + count
    return merged

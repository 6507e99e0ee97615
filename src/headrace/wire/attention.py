"""What needs attention: rules over scrapes of `/metrics`, the same for the console, `headrace status` and Prometheus.

    findings = attention([Snapshot(time.time(), parse(text)), ...])       oldest first; one is enough for most rules

Each rule stands in `RULES` with its PromQL expression, which packaging/prometheus/alerts.yaml has too (a test compares
them), and with a judge that decides the same here. Two rules look at a trend, by linear regression as Prometheus'
`deriv` and `predict_linear` do; they need ten minutes of snapshots. Snapshots may have the samples of several servers
of a shared store: of equal labels the largest value counts.

Pure: the time comes with the snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headrace.wire.metrics import Sample

Severity = Literal["critical", "warning"]
PlaceKind = Literal["topic", "group", "pipeline", "tokens", "store"]

# The time over which a trend is judged, and how much of it must be known.
LAG_WINDOW_SECONDS: Final = 15 * 60
DISK_WINDOW_SECONDS: Final = 3600
HISTORY_SECONDS_MIN: Final = 600
# A group that is less behind than this is not reported, even if its lag grows.
LAG_SECONDS_MIN: Final = 300
# How long archiving may be overdue: it also waits for its turn.
ARCHIVE_LATE_SECONDS: Final = 900
DISK_HORIZON_SECONDS: Final = 86_400
DISK_FREE_SHARE_MIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One scrape: its time in seconds since 1970, and its samples as `metrics.parse` gives them."""

    seconds: float
    samples: Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class ConcernPlace:
    """Where something is wrong: the kind of place, and the names that lead to it."""

    kind: PlaceKind
    topic: str = ""
    group: str = ""
    pipeline: str = ""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that needs attention: what is wrong where, and a sentence on what to do."""

    rule: str
    severity: Severity
    place: ConcernPlace
    problem: str
    advice: str


# Where a rule holds, and what is wrong there.
Judge = Callable[[Sequence[Snapshot]], Iterable[tuple[ConcernPlace, str]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `expression` is PromQL, true for `minutes` before Prometheus alerts; `summary` is its headline."""

    name: str
    severity: Severity
    summary: str
    advice: str
    expression: str
    minutes: int
    judge: Judge


def attention(snapshots: Sequence[Snapshot]) -> list[Concern]:
    """What needs attention now, the most severe first; snapshots are in the order of time."""
    if not snapshots:
        return []
    found = [
        Concern(rule.name, rule.severity, place, problem, rule.advice)
        for rule in RULES
        for place, problem in rule.judge(snapshots)
    ]
    return sorted(found, key=lambda finding: finding.severity != "critical")


Labels = tuple[tuple[str, str], ...]


def _values(snapshot: Snapshot, metric: str) -> dict[Labels, float]:
    """The values of a metric by labels; the largest of several servers."""
    values: dict[Labels, float] = {}
    for labels, value in snapshot.samples.get(metric, ()):
        key = tuple(sorted(labels.items()))
        values[key] = max(value, values.get(key, value))
    return values


def _place(kind: PlaceKind, labels: Labels) -> ConcernPlace:
    return ConcernPlace(kind, **dict(labels))


def _above_zero(metric: str, kind: PlaceKind, problem: str) -> Judge:
    """Holds wherever a metric is above 0; `problem` has a place for the number."""

    def judge(snapshots: Sequence[Snapshot]) -> Iterator[tuple[ConcernPlace, str]]:
        for labels, value in _values(snapshots[-1], metric).items():
            if value > 0:
                yield _place(kind, labels), problem.format(int(value))

    return judge


def _late_archive(snapshots: Sequence[Snapshot]) -> Iterator[tuple[ConcernPlace, str]]:
    for labels, seconds in _values(snapshots[-1], "headrace_archive_late_seconds").items():
        if seconds > ARCHIVE_LATE_SECONDS:
            yield _place("topic", labels), f"archiving is overdue for {int(seconds // 60)} minutes"


def _growing_lag(snapshots: Sequence[Snapshot]) -> Iterator[tuple[ConcernPlace, str]]:
    lags = _within(snapshots, "headrace_group_lag_messages", LAG_WINDOW_SECONDS)
    for labels, seconds in _values(snapshots[-1], "headrace_group_lag_seconds").items():
        trend = _trend(lags, labels) if seconds > LAG_SECONDS_MIN else None
        if trend is not None and trend.slope > 0:
            minutes = int(seconds // 60)
            yield _place("group", labels), f"{trend.last:,.0f} messages behind, {minutes} minutes, and falling behind"


def _filling_disk(snapshots: Sequence[Snapshot]) -> Iterator[tuple[ConcernPlace, str]]:
    trend = _trend(_within(snapshots, "headrace_disk_free_bytes", DISK_WINDOW_SECONDS), ())
    if trend is not None and trend.slope < 0 and trend.fitted + trend.slope * DISK_HORIZON_SECONDS < 0:
        hours = max(0.0, trend.fitted / -trend.slope / 3600)
        yield ConcernPlace("store"), f"at its present rate the disk is full in {hours:.1f} hours"


def _almost_full_disk(snapshots: Sequence[Snapshot]) -> Iterator[tuple[ConcernPlace, str]]:
    free = _values(snapshots[-1], "headrace_disk_free_bytes").get(())
    size = _values(snapshots[-1], "headrace_disk_size_bytes").get(())
    if free is not None and size and free < DISK_FREE_SHARE_MIN * size:
        yield ConcernPlace("store"), f"{free / size:.1%} of the disk is free"


@dataclass(frozen=True, slots=True)
class _Trend:
    """A line through the values: its slope per second, its value now, and the last value itself."""

    slope: float
    fitted: float
    last: float


# The values of a metric by labels, and how many seconds ago, as a negative number.
_Past = list[tuple[float, dict[Labels, float]]]


def _within(snapshots: Sequence[Snapshot], metric: str, window_seconds: float) -> _Past:
    """A metric over a window that ends now; read once for all its series."""
    ages = ((snapshot.seconds - snapshots[-1].seconds, snapshot) for snapshot in snapshots)
    return [(age, _values(snapshot, metric)) for age, snapshot in ages if age >= -window_seconds]


def _trend(past: _Past, labels: Labels) -> _Trend | None:
    """The trend of one series; None if too little of it is known."""
    points = [(age, values[labels]) for age, values in past if labels in values]
    if not points or points[0][0] > -HISTORY_SECONDS_MIN:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return _Trend(slope, mean_y - slope * mean_x, points[-1][1])


RULES: Final = (
    Rule(
        "topic_failing",
        "critical",
        "Topic {{ $labels.topic }} accepts no messages",
        "Look for the reason in the log of the server, repair the disk, and restart the server. Reading still works.",
        "headrace_topic_failing > 0",
        0,
        _above_zero("headrace_topic_failing", "topic", "it accepts no messages"),
    ),
    Rule(
        "damaged_segment",
        "critical",
        "Topic {{ $labels.topic }} has damaged segments",
        "Run headrace doctor on the store: it names the file and the offsets. Restore them from a backup.",
        "headrace_damaged_segments > 0",
        0,
        _above_zero("headrace_damaged_segments", "topic", "{:,} segments are damaged"),
    ),
    Rule(
        "disk_almost_full",
        "critical",
        "Less than 5 % of the disk is free",
        "Shorten retention with headrace topic alter TOPIC --retention 1d, delete a topic, or enlarge the disk.",
        f"headrace_disk_free_bytes < {DISK_FREE_SHARE_MIN} * headrace_disk_size_bytes",
        5,
        _almost_full_disk,
    ),
    Rule(
        "disk_filling",
        "critical",
        "The disk is full within a day",
        "Shorten retention with headrace topic alter TOPIC --retention 1d, delete a topic, or enlarge the disk.",
        f"predict_linear(headrace_disk_free_bytes[1h], {DISK_HORIZON_SECONDS}) < 0",
        10,
        _filling_disk,
    ),
    Rule(
        "archive_failing",
        "critical",
        "Topic {{ $labels.topic }} cannot be archived",
        "The log of the server has the reason. Nothing is lost: the log keeps what is not archived, so watch its disk.",
        "headrace_archive_failing > 0",
        15,
        _above_zero("headrace_archive_failing", "topic", "the last attempt to archive it failed"),
    ),
    Rule(
        "archive_late",
        "warning",
        "The archive of topic {{ $labels.topic }} falls behind",
        "See whether its server is busy or the archive slow; raise archive.file_bytes or archive_after_seconds.",
        f"headrace_archive_late_seconds > {ARCHIVE_LATE_SECONDS}",
        5,
        _late_archive,
    ),
    Rule(
        "lag_growing",
        "warning",
        "Group {{ $labels.group }} of topic {{ $labels.topic }} falls behind",
        "See with headrace group describe TOPIC GROUP whether its members run and commit; add members, up to the "
        "number of partitions.",
        "deriv(headrace_group_lag_messages[15m]) > 0 "
        f"and on (topic, group, instance) headrace_group_lag_seconds > {LAG_SECONDS_MIN}",
        10,
        _growing_lag,
    ),
    Rule(
        "messages_lost",
        "warning",
        "Topic {{ $labels.topic }} lost messages",
        "Readers skip the offsets of lost messages. The log of the server says when and why; publish what was lost "
        "again.",
        "headrace_offsets_skipped > 0",
        0,
        _above_zero("headrace_offsets_skipped", "topic", "{:,} offsets are skipped because their messages were lost"),
    ),
    Rule(
        "pipeline_failed",
        "warning",
        "Pipeline {{ $labels.pipeline }} of topic {{ $labels.topic }} failed",
        "See the error with headrace pipeline list, remove its cause, and start the pipeline again: it continues "
        "where it was.",
        "headrace_pipeline_failed > 0",
        0,
        _above_zero("headrace_pipeline_failed", "pipeline", "its last run failed, or was lost without an end"),
    ),
    Rule(
        "token_expiring",
        "warning",
        "A token expires soon",
        "Find it with headrace token list, and replace it with headrace token rotate NAME while both are valid.",
        "headrace_tokens_expiring > 0",
        0,
        _above_zero("headrace_tokens_expiring", "tokens", "{:,} tokens expire within 7 days"),
    ),
)

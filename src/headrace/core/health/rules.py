"""The rules: when something needs attention, how severe that is, what to do about it, and which command to begin with.

    findings = judge(reading, history)      the history has the reading already

Each rule is a row of `RULES`. The alert rules for Prometheus are made of the same rows (a test compares them with
packaging/prometheus/alerts.yaml), so an alert says what `headrace status` says. `minutes` is for Prometheus: how long a
finding lasts before it alerts.

A group with unread messages is judged by the first of these that holds: nothing reads it; it has readers and does not
commit; it commits and falls behind. Whether messages arrive does not matter. What takes time to know is unknown
until then.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace.core.health.findings import HealthFinding, Place, Severity
from headrace.core.health.history import GroupPast, HealthHistory
from headrace.core.health.readings import Expiry, GroupReading, Reading, TopicReading
from headrace.core.limits import MICROSECONDS
from headrace.core.text import bytes_shown, counted, duration_shown, time_shown

# After the start of a server members need this long to join again.
JOIN_SECONDS: Final = 10
# A group that is less behind than this may be working; and one that has not committed for so long is not.
LAG_SECONDS_MIN: Final = 300
# A group that is read without joining may pause for this long between commits.
ALONE_SECONDS_MAX: Final = 900
# How long archiving may be overdue: it also waits for its turn.
ARCHIVE_LATE_SECONDS: Final = 900
DISK_HORIZON_SECONDS: Final = 86_400
DISK_FREE_SHARE_MIN: Final = 0.05
# What expires is reported in the last tenth of its life, at most this long before its end; and a token for a day after.
NOTICE_SECONDS_MAX: Final = 7 * 86_400
EXPIRED_SECONDS_MAX: Final = 86_400


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `summary` is its headline; `command` has places for topic, group and name."""

    severity: Severity
    summary: str
    advice: str
    command: str = ""
    minutes: int = 0

    def command_at(self, topic: str, group: str, name: str) -> str:
        """The command with its places filled."""
        return self.command.format(topic=topic, group=group, name=name)


RULES: Final = {
    "topic_failing": Rule(
        "critical",
        "Topic {topic} accepts no messages",
        "Look for the reason in the log of the server, repair the disk, and restart the server. Reading still works.",
        "headrace topic describe {topic}",
    ),
    "damaged_segment": Rule(
        "critical",
        "Topic {topic} has damaged segments",
        "Stop the server and run headrace doctor on its store: it names the file and the offsets. Restore them from a "
        "backup.",
        "headrace topic describe {topic}",
    ),
    "store_read_only": Rule(
        "critical",
        "The store cannot be written",
        "The log of the server has the reason: a full disk, or one that fails. Reading still works.",
        "headrace topic list",
    ),
    "disk_almost_full": Rule(
        "critical",
        "Less than 5 % of the disk is free",
        "Shorten the retention of large topics with headrace topic alter, delete a topic, or enlarge the disk.",
        "headrace topic list",
    ),
    "disk_filling": Rule(
        "critical",
        "The disk is full within a day",
        "Shorten the retention of large topics with headrace topic alter, delete a topic, or enlarge the disk.",
        "headrace topic list",
    ),
    "archive_failing": Rule(
        "critical",
        "Topic {topic} cannot be archived",
        "The log of the server has the reason. Nothing is lost: the log keeps what is not archived, so watch its disk.",
        "headrace topic describe {topic}",
        minutes=15,
    ),
    "archive_late": Rule(
        "warning",
        "The archive of topic {topic} falls behind",
        "See whether its server is busy or the archive slow; raise archive.file_bytes or archive_after_seconds.",
        "headrace topic describe {topic}",
        minutes=5,
    ),
    "group_unread": Rule(
        "warning",
        "Nothing reads group {group} of topic {topic}",
        "Start its reader again; or delete the group, if it is used no more.",
        "headrace group describe {topic} {group}",
        minutes=1,
    ),
    "group_stalled": Rule(
        "warning",
        "Group {group} of topic {topic} does not commit",
        "Look at the log of its readers: one hangs, fails at the same message again and again, or does not commit.",
        "headrace group describe {topic} {group}",
        minutes=1,
    ),
    "lag_growing": Rule(
        "warning",
        "Group {group} of topic {topic} falls behind",
        "See whether all its members work; add members, up to the number of partitions.",
        "headrace group describe {topic} {group}",
        minutes=1,
    ),
    "messages_lost": Rule(
        "warning",
        "Topic {topic} lost messages",
        "Readers skip the offsets of lost messages. The log of the server says when and why; publish what was lost "
        "again.",
        "headrace topic describe {topic}",
    ),
    "pipeline_failed": Rule(
        "warning",
        "Pipeline {name} of topic {topic} failed",
        "Remove the cause, and start the pipeline again: it continues where it was.",
        "headrace pipeline list",
    ),
    "token_expiring": Rule(
        "warning",
        "Token {name} expires",
        "Replace it while both are valid, and give the new one to its users.",
        "headrace token rotate {name}",
    ),
    "strangers_served": Rule(
        "warning",
        "Callers without a token are served",
        "Give each of them a token before that ends, or it is refused then.",
        "headrace client list",
        minutes=15,
    ),
    "certificate_expiring": Rule(
        "warning",
        "The certificate in {name} expires",
        "Renew the file, and send SIGHUP to the server: it loads it without a restart.",
        "openssl x509 -noout -enddate -subject -in {name}",
    ),
    "too_early": Rule(
        "unknown",
        "Whether group {group} of topic {topic} is read is not known yet",
        "Ask again in a few minutes.",
        "headrace group describe {topic} {group}",
        minutes=10,
    ),
    "not_read": Rule(
        "unknown",
        "Something could not be judged: {name}",
        "The log of the server says more. Nothing is known about this part until it can be read again.",
        "headrace status",
        minutes=5,
    ),
    "server_silent": Rule(
        "unknown",
        "Server {name} did not answer",
        "See whether it runs, whether its HTTP address can be reached from here, and whether the token is valid there.",
        "curl -sS {name}/health/live",
    ),
}


def finding(rule: str, place: Place, problem: str, severity: Severity | None = None) -> HealthFinding:
    """A finding of a rule; of another severity than it usually has, if one is given."""
    named = RULES[rule]
    command = named.command_at(*(shlex.quote(name) for name in (place.topic, place.group, place.name)))
    return HealthFinding(rule, severity or named.severity, place, problem, named.advice, command)


def silent(url: str, reason: str) -> HealthFinding:
    """What there is to say of a server that did not answer."""
    return finding("server_silent", Place("server", name=url), f"it did not answer: {reason}")


def ends_soon(begin_us: int, end_us: int, now_us: int) -> bool:
    """Whether a token or certificate is in the last tenth of its life, at most a week before its end."""
    return end_us - now_us <= min((end_us - begin_us) // 10, NOTICE_SECONDS_MAX * MICROSECONDS)


def judge(reading: Reading, history: HealthHistory) -> list[HealthFinding]:
    """All findings; the history has the reading already."""
    return [
        *_store(reading),
        *_disk(reading, history),
        *(found for topic in reading.topics for found in _topic(topic)),
        *_groups(reading, history),
        *_pipelines(reading),
        *(found for expiry in reading.expiries for found in _expiry(expiry, reading.now_us)),
        *_strangers(reading),
    ]


def _store(reading: Reading) -> Iterator[HealthFinding]:
    for part, reason in reading.unread:
        yield finding("not_read", Place("server", name=part), f"its {part} could not be read: {reason}")
    if not reading.can_write:
        yield finding("store_read_only", Place("store"), "a small file cannot be written")


def _disk(reading: Reading, history: HealthHistory) -> Iterator[HealthFinding]:
    disk = reading.disk
    if disk is None:
        return
    own = _own_bytes(reading)
    if disk.free_bytes < DISK_FREE_SHARE_MIN * disk.size_bytes:
        share = f"{disk.free_bytes / disk.size_bytes:.1%} of {bytes_shown(disk.size_bytes)} is free"
        yield finding("disk_almost_full", Place("store"), f"{share}; {own}")
    trend = history.free_bytes.trend(reading.at_us, disk.free_bytes)
    if trend is not None and trend.slope < 0 and trend.fitted + trend.slope * DISK_HORIZON_SECONDS < 0:
        hours = max(0.0, trend.fitted / -trend.slope / 3600)
        growth = history.bytes_stored.trend(reading.at_us, reading.bytes_stored)
        grown = 0.0 if growth is None else max(0.0, growth.slope)
        speed = f"{_hourly(-trend.slope)} less free, topics grow by {_hourly(grown)}"
        yield finding(
            "disk_filling", Place("store"), f"at its present rate it is full in {hours:.1f} hours; {speed}; {own}"
        )


def _hourly(bytes_per_second: float) -> str:
    return f"{bytes_shown(int(bytes_per_second * 3600))} an hour"


def _own_bytes(reading: Reading) -> str:
    """How much of the disk is Headrace's, and which topic takes most."""
    largest = max(reading.topics, key=lambda topic: topic.bytes_stored, default=None)
    most = f", {largest.name} most: {bytes_shown(largest.bytes_stored)}" if largest else ""
    return f"topics take {bytes_shown(reading.bytes_stored)}{most}"


def _topic(topic: TopicReading) -> Iterator[HealthFinding]:
    place = Place("topic", topic.name)
    if topic.failure is not None:
        yield finding("topic_failing", place, f"it accepts no messages: {topic.failure}")
    if topic.damaged_segments:
        yield finding("damaged_segment", place, f"{counted(topic.damaged_segments, 'segment')} damaged")
    if topic.offsets_skipped:
        lost = counted(topic.offsets_skipped, "offset")
        yield finding("messages_lost", place, f"{lost} skipped because their messages were lost")
    if topic.archive_is_failing:
        yield finding("archive_failing", place, "the last attempt to archive it failed")
    if topic.archive_late_seconds > ARCHIVE_LATE_SECONDS:
        yield finding("archive_late", place, f"archiving is overdue for {duration_shown(topic.archive_late_seconds)}")


def _groups(reading: Reading, history: HealthHistory) -> Iterator[HealthFinding]:
    for (topic, name), group in (reading.groups or {}).items():
        if group.lag_messages:
            place = Place("group", topic, name)
            yield from _group(place, group, history.groups[topic, name], reading)


def _group(place: Place, group: GroupReading, past: GroupPast, reading: Reading) -> Iterator[HealthFinding]:
    behind = f"{counted(group.lag_messages, 'message')} unread, the oldest for {duration_shown(group.lag_seconds)}"
    # What retention keeps for a group takes the disk of all.
    severity: Severity | None = "critical" if group.is_important else None
    is_alone = past.alone_us is not None and reading.at_us - past.alone_us <= ALONE_SECONDS_MAX * MICROSECONDS
    if not (group.has_members or group.is_fixed or is_alone):
        if (place.topic, place.group) in reading.early_groups:
            up = f"the server started {duration_shown(reading.up_seconds)} ago, members may still be joining"
            yield finding("too_early", place, f"{behind}, and no member; {up}")
        else:
            yield finding("group_unread", place, f"{behind}, and no member", severity)
        return
    if group.lag_seconds <= LAG_SECONDS_MIN:
        return
    still_seconds = (reading.at_us - (past.since_us if past.moved_us is None else past.moved_us)) / MICROSECONDS
    if still_seconds > LAG_SECONDS_MIN:
        at_least = "at least " if past.moved_us is None else ""
        still = f"no commit for {at_least}{duration_shown(still_seconds)}"
        yield finding("group_stalled", place, f"{behind}, and {still}", severity)
    elif past.moved_us is None:
        seen = f"it is watched for {duration_shown(still_seconds)} only, without a commit"
        yield finding("too_early", place, f"{behind}; {seen}")
    else:
        trend = past.lags.trend(reading.at_us, group.lag_messages)
        if trend is not None and trend.slope > 0:
            rate = f"{trend.slope * 60:,.0f} a minute more"
            yield finding("lag_growing", place, f"{behind}, and {rate}", severity)


def _pipelines(reading: Reading) -> Iterator[HealthFinding]:
    for each in reading.pipelines:
        place = Place("pipeline", each.topic, name=each.name)
        if each.state == "failed":
            reason = (each.report.error or "it gave no reason").splitlines()[0]
            yield finding("pipeline_failed", place, f"its last run failed: {reason}")
        elif each.state == "lost":
            host = f" on {each.report.host}" if each.report.host else ""
            silence = duration_shown((reading.now_us - each.reported_us) / MICROSECONDS)
            yield finding("pipeline_failed", place, f"its run{host} is silent for {silence}")


def _expiry(expiry: Expiry, now_us: int) -> Iterator[HealthFinding]:
    rule = f"{expiry.place.kind}_expiring"
    left_seconds = (expiry.end_us - now_us) / MICROSECONDS
    if left_seconds <= 0:
        yield finding(rule, expiry.place, f"it expired {duration_shown(-left_seconds)} ago", "critical")
    elif ends_soon(expiry.begin_us, expiry.end_us, now_us):
        yield finding(rule, expiry.place, f"it expires in {duration_shown(left_seconds)}")


def _strangers(reading: Reading) -> Iterator[HealthFinding]:
    until_us = reading.grace_until_us
    if until_us is not None and until_us > reading.now_us:
        left = duration_shown((until_us - reading.now_us) / MICROSECONDS)
        problem = f"callers without a token are served until {time_shown(until_us)}, for {left} more"
        yield finding("strangers_served", Place("store"), problem)

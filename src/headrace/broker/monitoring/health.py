"""The health of a server, judged by itself: one look at a time, remembered over time (`core.health`).

    broker.health.latest()      the verdict, at most a second old, or older where judging takes long

Maintenance looks every few seconds, so that trends are known. Callers get the last verdict, or a new one if that is too
old; judging takes at most a tenth of the time, however many ask. What cannot be read is a finding of its own, and the
verdict is unknown at least. If a look hangs, as on a device that does not answer, callers wait for some seconds and get
the last findings with one that says so. Thread-safe.

Locks: `_looking` (one look at a time), under which the store is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from headrace.broker.access import Access
from headrace.broker.clock import Clock
from headrace.broker.groups.claims import GroupClaims
from headrace.broker.monitoring.metrics import TopicMetrics
from headrace.core.errors import HeadraceError
from headrace.core.health.findings import Health, Place
from headrace.core.health.history import HealthHistory
from headrace.core.health.readings import DiskReading, Expiry, GroupKey, GroupReading, Reading, TopicReading
from headrace.core.health.rules import JOIN_SECONDS, finding, judge
from headrace.core.limits import HEALTH_FRESH_SECONDS, HEALTH_SHARE, HEALTH_WAIT_SECONDS, MICROSECONDS
from headrace.core.names import topic_key
from headrace.core.reports.pipelines import PipelineDescription

Part = TypeVar("Part")
_NO_PARTITIONS: Final = 0


class Observed(Protocol):
    """What is looked at: a broker."""

    access: Access
    claims: GroupClaims

    def topic_metrics(self, partitions_max: int | None = None) -> list[TopicMetrics]: ...

    def failing_topics(self) -> dict[str, str]: ...

    def topics_of_groups(self) -> dict[str, list[str]]: ...

    def can_write(self) -> bool: ...

    def disk_space(self) -> tuple[int, int] | None: ...

    def list_pipelines(self) -> list[PipelineDescription]: ...


class HealthWatch:
    """Looks at a broker, and remembers."""

    def __init__(self, broker: Observed, clock: Clock, server_id: str) -> None:
        self._broker = broker
        self._clock = clock
        self._server_id = server_id
        self._started_us = clock.monotonic_us()
        self._early_groups: frozenset[GroupKey] = frozenset()
        self._history = HealthHistory()
        self._looking = threading.Lock()
        self._latest: Health | None = None
        self._fresh_until_us = 0
        # What a server presents or trusts, replaced when it is loaded again.
        self.certificates: Sequence[Expiry] = ()

    def start(self) -> None:
        """Remember which groups there are: their members, if they have any, join again now."""
        # A store that does not answer now says so at the first look.
        with suppress(HeadraceError):
            groups = self._broker.topics_of_groups()
            self._early_groups = frozenset((topic, group) for group, topics in groups.items() for topic in topics)

    def look(self) -> None:
        """Judge, unless that was done a moment ago; maintenance calls this."""
        self.latest()

    def latest(self) -> Health:
        """The last verdict, or a new one if that is too old."""
        if not self.look_is_due() and self._latest is not None:
            return self._latest
        if not self._looking.acquire(timeout=HEALTH_WAIT_SECONDS):
            late = finding("not_read", Place("server", name="store"), "its store has not answered for some seconds")
            latest = self._latest or Health.of(self._server_id, self._clock.now_us(), ())
            return latest.with_more([late])
        try:
            if self.look_is_due() or self._latest is None:
                began_us = self._clock.monotonic_us()
                self._latest = self._judged()
                now_us = self._clock.monotonic_us()
                rest_us = max(HEALTH_FRESH_SECONDS * MICROSECONDS, (now_us - began_us) / HEALTH_SHARE)
                self._fresh_until_us = now_us + int(rest_us)
            return self._latest
        finally:
            self._looking.release()

    def look_is_due(self) -> bool:
        """Whether the last verdict is too old."""
        return self._clock.monotonic_us() >= self._fresh_until_us

    def _judged(self) -> Health:
        reading = self._read()
        self._history.add(reading)
        return Health.of(self._server_id, reading.now_us, judge(reading, self._history))

    def _read(self) -> Reading:
        broker, unread = self._broker, list[tuple[str, str]]()

        def read(part: str, look: Callable[[], Part]) -> Part | None:
            try:
                return look()
            except (HeadraceError, OSError) as error:
                unread.append((part, str(error)))
                return None

        measured = read("topics", lambda: broker.topic_metrics(_NO_PARTITIONS))
        # Without them nothing is known of members either, and a group would be said to have none.
        outside = read("members", broker.claims.groups)
        disk = read("disk", broker.disk_space)
        expiries, grace_until_us = read("tokens", self._tokens) or ((), None)
        at_us = self._clock.monotonic_us()
        up_seconds = (at_us - self._started_us) / MICROSECONDS
        if up_seconds >= JOIN_SECONDS:
            self._early_groups = frozenset()
        return Reading(
            now_us=self._clock.now_us(),
            at_us=at_us,
            up_seconds=up_seconds,
            early_groups=self._early_groups,
            can_write=read("writability", broker.can_write) is not False,
            disk=None if disk is None else DiskReading(*disk),
            topics=_topics(measured or (), broker.failing_topics()),
            groups=None if measured is None or outside is None else dict(_groups(measured, outside)),
            pipelines=read("pipelines", broker.list_pipelines) or [],
            expiries=[*expiries, *self.certificates],
            grace_until_us=grace_until_us,
            unread=unread,
        )

    def _tokens(self) -> tuple[Sequence[Expiry], int | None]:
        """Tokens that end, and until when callers without one are served."""
        access = self._broker.access
        ending = [
            Expiry(Place("token", name=token.name), token.created_us, token.expires_us)
            for token in access.ending()
            if token.expires_us is not None
        ]
        return ending, access.grace_until_us()


def _topics(measured: Sequence[TopicMetrics], failing: dict[str, str]) -> list[TopicReading]:
    # A topic that could not be opened has no metrics.
    broken = failing.keys() - {topic.name for topic in measured}
    return [TopicReading(name, failing[name]) for name in sorted(broken)] + [
        TopicReading(
            name=topic.name,
            failure=failing.get(topic.name),
            damaged_segments=topic.damaged_segments,
            offsets_skipped=topic.offsets_skipped,
            archive_is_failing=topic.archive is not None and bool(topic.archive.is_failing),
            archive_late_seconds=0.0 if topic.archive is None else topic.archive.late_seconds,
            bytes_stored=topic.bytes_stored,
        )
        for topic in measured
    ]


def _groups(measured: Iterable[TopicMetrics], outside: set[tuple[str, str]]) -> Iterable[tuple[GroupKey, GroupReading]]:
    for topic in measured:
        for group in topic.groups:
            has_members = not group.is_fixed and group.members > 0
            yield (
                (topic.name, group.name),
                GroupReading(
                    lag_messages=group.lag_messages,
                    lag_seconds=group.lag_seconds,
                    position=group.committed,
                    has_members=has_members or (topic_key(topic.name), group.name) in outside,
                    is_fixed=group.is_fixed,
                    is_important=group.is_important,
                    generation=group.generation,
                    seek_generation=group.seek_generation,
                ),
            )

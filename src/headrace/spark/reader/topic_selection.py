"""Which topics a query reads, by name or by pattern, and what is in them now.

Topics are looked up again for every micro-batch: those that appear later are read from their oldest message on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.client import Client
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.errors import InvalidInput, TopicDeleted, TopicNotFound
from headrace.core.limits import DESCRIBED_TOPICS_MAX
from headrace.core.names import topic_key
from headrace.core.positions import Earliest, Latest, OffsetsAtTime, Position, moment, resolve
from headrace.core.reports.descriptions import TopicDescription
from headrace.spark.connection import Connection
from headrace.spark.reader.splits import Bounds, PartitionKey

Found = TypeVar("Found")

# A topic that was deleted before a request, or during it.
DELETED: Final = (TopicNotFound, TopicDeleted)


@dataclass(frozen=True, slots=True)
class PerTopic:
    """A position for each topic named, by what two names must share to be one topic; the others have the default."""

    positions: Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics of a query. It travels to executors."""

    connection: Connection
    topics: tuple[str, ...]
    pattern: str | None = None

    def look(self, may_lack: bool = False) -> dict[PartitionKey, tuple[int, int]]:
        """Start and end offset of every partition of every topic.

        may_lack: leave out named topics that do not exist instead of raising.
        """
        return {
            PartitionKey(topic.id, topic.name, partition): bound
            for topic in self.descriptions(may_lack)
            for partition, bound in sorted(topic.offsets.items())
        }

    def descriptions(self, may_lack: bool = False) -> list[TopicDescription]:
        """Every topic as it is now."""
        return self.connection.call(lambda client: self.described(client, may_lack))

    def wait(self, known: Mapping[PartitionKey, int], seconds: float) -> None:
        """Wait until a topic has other ends than the known ones, or the time is up.

        Of several topics the one with the largest offset is watched: news of the others are seen when the time is up.
        """
        if not known:
            # There is no topic to watch yet.
            time.sleep(seconds)
            return
        watched = max(known, key=lambda place: known[place]).topic
        ends = {place.partition: end for place, end in known.items() if place.topic == watched}

        def await_news(client: Client) -> None:
            client.await_offsets(watched, ends, seconds)

        try:
            self.connection.call(await_news)
        except DELETED:
            # The next look tells.
            return

    def selects(self, topic: str) -> bool:
        """Whether a topic of this name is read."""
        return selects(topic, self.topics, self.pattern)

    def offsets_at(
        self, field: str, position: Position | PerTopic, bounds: Bounds, otherwise: Earliest | Latest
    ) -> dict[PartitionKey, int]:
        """The offset of each partition at a position, topic by topic."""
        offsets: dict[PartitionKey, int] = {}
        for places in by_topic(bounds).values():
            present, topic = {place.partition: bounds[place] for place in places}, places[0].topic
            here = position.positions.get(topic_key(topic), otherwise) if isinstance(position, PerTopic) else position
            found = resolve(field, here, present, otherwise, self._at_time(topic))
            offsets |= {place: found[place.partition] for place in places}
        return offsets

    def _at_time(self, topic: str) -> OffsetsAtTime:
        def offsets_at(time_us: int, partitions: list[int]) -> dict[int, int]:
            return self.connection.call(lambda client: client.offsets_at(topic, moment(time_us), partitions))

        return offsets_at

    def archives(self) -> list[ArchiveSnapshot]:
        """The archive of every topic, with the offsets that the topic had right after it was looked up."""
        return self.connection.call(lambda client: self._each(client, client.archive))

    def described(self, client: Client, may_lack: bool = False) -> list[TopicDescription]:
        """The same in one attempt: hundreds in a request, and those that it leaves out alone, which says why."""
        names = self._names(client)
        together = described_together(client, names) if len(names) > 1 else {}
        return self._each(client, lambda name: together.get(name) or client.describe_topic(name), may_lack, names)

    def _names(self, client: Client) -> Sequence[str]:
        return self.topics if self.pattern is None else list(filter(self.selects, client.list_topics()))

    def _each(
        self, client: Client, look: Callable[[str], Found], may_lack: bool = False, names: Sequence[str] | None = None
    ) -> list[Found]:
        """What is found of every topic; one that matches the pattern may be deleted after it was listed."""
        found = []
        for name in self._names(client) if names is None else names:
            try:
                found.append(look(name))
            except DELETED:
                if self.pattern is None and not may_lack:
                    raise
        return found


def described_together(client: Client, names: Sequence[str]) -> dict[str, TopicDescription]:
    """The descriptions of topics by the names that were asked for, as far as the broker gives them."""
    parts = (names[first : first + DESCRIBED_TOPICS_MAX] for first in range(0, len(names), DESCRIBED_TOPICS_MAX))
    found = {topic_key(topic.name): topic for part in parts for topic in client.describe_topics(part)}
    return {name: found[key] for name in names if (key := topic_key(name)) in found}


def selects(topic: str, topics: Iterable[str], pattern: str | None) -> bool:
    """Whether a topic is one of the named ones, or matches the pattern if there is one. Names are case-insensitive."""
    if pattern is not None:
        return re.fullmatch(pattern, topic, re.IGNORECASE) is not None
    return topic_key(topic) in {topic_key(name) for name in topics}


def by_topic(places: Iterable[PartitionKey]) -> dict[int, list[PartitionKey]]:
    """Partitions by the id of their topic."""
    topics: dict[int, list[PartitionKey]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic_id, []).append(place)
    return topics


def check_pattern(field: str, pattern: str) -> str:
    """Raise for a pattern that is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidInput(field, repr(pattern)[:100], f"it must be a regular expression: {error}") from None
    return pattern

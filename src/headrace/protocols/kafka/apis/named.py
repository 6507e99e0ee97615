"""What a request names, each once: what it names more often is refused where Kafka refuses it, or counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from headrace.protocols.kafka.apis.call import Call

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

REFUSED: Final[dict[str, Any]] = {
    "error_code": ErrorCode.invalid_request,
    "error_message": "it is named more than once in this request: name it once",
}


def split(items: Iterable[T], key: Callable[[T], K]) -> tuple[list[T], list[K]]:
    """Those that are named once, and the names of the others, each once."""
    every = [(key(item), item) for item in items]
    counts = Counter(name for name, _ in every)
    return [item for name, item in every if counts[name] == 1], [name for name, count in counts.items() if count > 1]


@dataclass(frozen=True, slots=True)
class NamedPartitions:
    """Partitions by topic and number, each as it is named last; and those that are named more than once."""

    topics: dict[str, dict[int, Any]]
    repeated: set[tuple[str, int]]


async def named_partitions(call: Call, topics: Any, name: str, number: str) -> NamedPartitions:
    """What a request names, by fields of these names, once there is room for an answer about each of them."""
    elements = len(topics) + sum(len(topic.partitions) for topic in topics)
    named = await call.work(elements, _by_topic, topics, name, number)
    await call.hold(len(named.topics) + sum(map(len, named.topics.values())), named.topics)
    return named


def _by_topic(topics: Any, name: str, number: str) -> NamedPartitions:
    named = NamedPartitions({}, set())
    for topic in topics:
        topic_name = getattr(topic, name)
        partitions = named.topics.setdefault(topic_name, {})
        for each in topic.partitions:
            partition = getattr(each, number)
            if partition in partitions:
                named.repeated.add((topic_name, partition))
            partitions[partition] = each
    return named

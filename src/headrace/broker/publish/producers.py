"""Producers and their epochs: of several that were opened for one source only the newest may write.

Opening happens between two commits of the topic, and every commit asks for the epochs of its producers before it
writes. So what a predecessor was writing is finished before a new producer learns its last seqno, and what it sends
later is refused. The log keeps the epochs: a store that one server owns in memory, a shared one in the database, so
that a producer opened through any server fences all earlier ones.
"""

from __future__ import annotations

from headrace.broker.topics.topic import Topic
from headrace.core.errors import ProducerFenced
from headrace.core.publish.sources import NO_LINK, Source
from headrace.core.publish.state import TopicState
from headrace.storage.interface import Fences


def open_producer(topic: Topic, source: Source, epoch: int | None, now_us: int) -> tuple[int, int | None, int | None]:
    """The epoch of a new or continuing producer, the last seqno of its source, and the partition it is linked to."""

    def open_(state: TopicState, fences: Fences) -> tuple[int, int | None, int | None]:
        present = fences.epochs([source]).get(source, 0)
        mine = max(now_us, present + 1) if epoch is None else epoch
        if mine < present:
            raise ProducerFenced(topic.record.name, source[0], mine, present)
        if mine > present:
            fences.put(source, mine)
        _, link = state.sources.lookup([source], now_us)
        linked = int(link[0])
        return mine, state.sources.last_seqno(source), None if linked == NO_LINK else linked

    return topic.between_fences(open_)

"""Producers of a shared store: their epochs are in the database, so that one opened through any server fences off all
before it, whichever server those write through.

Opening happens between two commits of the topic, and every commit asks for the epochs of its producers before it
writes. So what a predecessor was writing is finished before a new producer learns its last seqno, and what it sends
later is refused.
"""

from __future__ import annotations

from headrace.broker.topics.topic import Topic
from headrace.core.errors import ProducerFenced
from headrace.core.publish.plan import TopicState


def open_shared_producer(
    topic: Topic, source: tuple[str, str], epoch: int | None, now_us: int
) -> tuple[int, int | None]:
    """The epoch of a new producer, or of one that goes on, and the last seqno of its source."""

    def open_(state: TopicState) -> tuple[int, int | None]:
        log = topic.fencing()
        present = log.epochs([source]).get(source, 0)
        mine = max(now_us, present + 1) if epoch is None else epoch
        if mine < present:
            raise ProducerFenced(topic.record.name, source[0], mine, present)
        if mine > present:
            log.put_epoch(source, mine)
        return mine, state.sources.last_seqno(source)

    return topic.between_commits(open_)

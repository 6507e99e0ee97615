"""Room in the queues of topics, taken ahead of publishing and without a thread: for servers that have an event loop.

A queue is the one bound on what waits to be written to a topic, whoever brings it. Publishers with a thread of their
own wait for room in `CommitQueue.publish`. An event loop cannot wait there, and whatever it collected before asking
would be a second queue without a bound. So it asks for room first: an admission is counted from that moment on, and
`wake` is called if it has to stand in line. What is admitted is published without waiting for room again, or withdrawn.
Safe for threads; `admit`, `admit_value` and `withdraw` wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.broker.checks import check_batch, check_commit_key
from headrace.broker.publish.commit_queue import Request
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.registry import Topics
from headrace.broker.topics.topic import Topic
from headrace.core.errors import HeadraceError, Overloaded
from headrace.core.publish.plan import CommitKey, Receipts

# What a single value takes in memory besides its bytes, as long as it waits.
VALUE_OVERHEAD_BYTES: Final = 256


@dataclass(slots=True, eq=False)
class Admission:
    """What one publisher wants written, and whether there is room for it yet."""

    topic: Topic
    request: Request

    def is_in(self) -> bool:
        """Whether it is counted in."""
        return self.request.is_counted


class Admissions:
    """Admissions to the topics of a broker."""

    def __init__(self, topics: Topics, settings: BrokerSettings) -> None:
        self._topics = topics
        self._seconds = settings.publish_timeout_seconds

    @property
    def wait_seconds(self) -> float:
        """How long to wait in line before giving up."""
        return self._seconds

    def admit(
        self, topic: str, batch: pa.RecordBatch, wake: Callable[[], None], commit_key: CommitKey | None = None
    ) -> Admission:
        """Ask for room for a batch; `wake` is called, in any thread, once there is some or the topic has ended."""
        return self._admit(topic, Request([check_batch(batch)], check_commit_key(commit_key)), wake)

    def admit_value(self, topic: str, size: int, wake: Callable[[], None]) -> Admission:
        """The same for a message that is nothing but a value of so many bytes."""
        return self._admit(topic, Request((), rows=1, bytes=size + VALUE_OVERHEAD_BYTES), wake)

    def _admit(self, topic: str, request: Request, wake: Callable[[], None]) -> Admission:
        found = self._topics.find(topic).topic
        found.queue.admit(request, wake)
        return Admission(found, request)

    def withdraw(self, admission: Admission) -> None:
        """Give up what was not published; twice does no harm."""
        admission.topic.queue.withdraw(admission.request)

    def overloaded(self, admission: Admission) -> HeadraceError:
        """Why one that waited in line is not in: there was no room in time, or the topic has ended."""
        return admission.topic.queue.closed_reason() or Overloaded(
            f"the publish queue of topic {admission.topic.record.name!r}",
            admission.topic.queue.messages_max,
            self._seconds,
        )

    def publish(self, admissions: Sequence[Admission]) -> list[Receipts | Exception]:
        """Publish what was admitted to one topic: each is written or refused by itself, all share syncs."""
        return self._publish(admissions[0].topic, [admission.request for admission in admissions])

    def publish_values(self, admissions: Sequence[Admission], batch: pa.RecordBatch) -> list[Receipts | Exception]:
        """Publish admitted values as the one batch that they make; a receipt or an error for all of it."""
        topic = admissions[0].topic
        together = topic.queue.merged([admission.request for admission in admissions], batch)
        return self._publish(topic, [together])

    def _publish(self, topic: Topic, requests: Sequence[Request]) -> list[Receipts | Exception]:
        try:
            topic.queue.publish_many(requests, self._seconds)
        except HeadraceError as error:
            # Those that did not get in; the others have their own outcome.
            for request in requests:
                if request.receipts is None and request.error is None:
                    request.error = error
        return [request.outcome for request in requests]

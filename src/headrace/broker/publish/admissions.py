"""Admissions to the publish queues of topics, without a thread per publisher: for servers with an event loop.

A topic's queue is the only limit on what waits to be written to it. Publishers with a thread wait for space in
`CommitQueue.publish`. An event loop cannot block there, and anything it collected first would be a second, unbounded
queue. So it asks for an admission first: it counts from that moment on, and `wake` is called if it has to wait. What is
admitted is published without waiting again, or withdrawn. Thread-safe; `admit`, `admit_value` and `withdraw` never
block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.broker.checks import check_batch, check_commit_key
from headrace.broker.publish.commit_queue import BatchParts, Request
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.registry import Topics
from headrace.broker.topics.topic import Topic
from headrace.core.errors import HeadraceError, Overloaded
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey

# Memory overhead of a single value while it waits.
VALUE_OVERHEAD_BYTES: Final = 256


@dataclass(slots=True, eq=False)
class Admission:
    """One publisher's request for space in the queue, and whether it is admitted."""

    topic: Topic
    request: Request

    def is_in(self) -> bool:
        """Whether it is admitted."""
        return self.request.is_counted


class Admissions:
    """Admissions to the topics of a broker."""

    def __init__(self, topics: Topics, settings: BrokerSettings) -> None:
        self._topics = topics
        self._seconds = settings.publish_timeout_seconds

    @property
    def wait_seconds(self) -> float:
        """How long to wait for admission."""
        return self._seconds

    def admit(
        self,
        topic: str,
        batch: pa.RecordBatch,
        wake: Callable[[], None],
        commit_key: CommitKey | None = None,
        parts: BatchParts | None = None,
    ) -> Admission:
        """Request space for a batch; `wake` is called, in any thread, once there is space or the topic has ended."""
        return self._admit(topic, Request([check_batch(batch)], check_commit_key(commit_key), parts=parts), wake)

    def admit_value(self, topic: str, size: int, wake: Callable[[], None]) -> Admission:
        """The same for a message that has only a value, of the given size."""
        return self._admit(topic, Request((), rows=1, bytes=size + VALUE_OVERHEAD_BYTES), wake)

    def _admit(self, topic: str, request: Request, wake: Callable[[], None]) -> Admission:
        found = self._topics.find(topic).topic
        found.queue.admit(request, wake)
        return Admission(found, request)

    def withdraw(self, admission: Admission) -> None:
        """Withdraw what was not published; idempotent."""
        admission.topic.queue.withdraw(admission.request)

    def overloaded(self, admission: Admission) -> HeadraceError:
        """Why a request was not admitted: no space in time, or the topic has ended."""
        return admission.topic.queue.closed_reason() or Overloaded(
            f"the publish queue of topic {admission.topic.record.name!r}",
            admission.topic.queue.messages_max,
            self._seconds,
        )

    def publish(self, admissions: Sequence[Admission]) -> list[Receipts | Exception]:
        """Publish what was admitted to one topic: each is written or rejected separately, all share syncs."""
        return self._publish(admissions[0].topic, [admission.request for admission in admissions])

    def publish_values(self, admissions: Sequence[Admission], batch: pa.RecordBatch) -> list[Receipts | Exception]:
        """Publish admitted values as one batch; returns its receipts or one error."""
        topic = admissions[0].topic
        together = topic.queue.merged([admission.request for admission in admissions], batch)
        return self._publish(topic, [together])

    def _publish(self, topic: Topic, requests: Sequence[Request]) -> list[Receipts | Exception]:
        try:
            topic.queue.publish_many(requests, self._seconds)
        except HeadraceError as error:
            # Only those that were not admitted; the others have their own outcome.
            for request in requests:
                if request.receipts is None and request.error is None:
                    request.error = error
        return [request.outcome for request in requests]

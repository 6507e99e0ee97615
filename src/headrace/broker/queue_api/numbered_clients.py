"""Named producers of the PgQueue HTTP API, whose messages are counted.

After a crash a client asks how many of its messages arrived, and continues after them. So the count must be written
with the message: the name is a producer id, and the count is the seqno. It is as durable as the messages.

The next number is cached, so that a message needs no lookup. If another server wrote for the same client meanwhile, the
number is already used: the message is a duplicate, and is sent again with a higher one. A lock for each client keeps
its messages in order. Messages that a topic drops because their payload repeats are not counted.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.broker.publish.submission import Submission
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.limits import SEQNO_MAX
from headrace.core.messages import STORED_SCHEMA
from headrace.core.names import check_id
from headrace.core.publish.receipts import CONFLICT, DUPLICATE_BY_SOURCE
from headrace.core.publish.sources import Source

# The prefix of these clients' producer ids, so that no other seqnos are mistaken for a count.
PREFIX: Final = "prod_client:"
# Number of cached clients; the least recently used one is evicted, and looked up again.
_REMEMBERED_MAX: Final = 10_000


@dataclass(slots=True)
class _Client:
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int | None = None


class NumberedClients:
    """The named producers of all topics. Thread-safe."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self._clients: dict[tuple[int, str], _Client] = {}

    def publish(self, topic: str, name: str, value: bytes, partition: int | None, timeout_seconds: float) -> float:
        """Publish a message as the next one of a client; durable when this returns.

        Returns for how many seconds the client is to be answered later, since it writes too fast; nothing is held then.
        """
        opened, source = self._topics.find(topic), _source(name)
        client = self._client(opened.record.id, name)
        with client.lock:
            while True:
                if client.count is None:
                    client.count = _count(opened, source)
                if client.count >= SEQNO_MAX:
                    rule = f"its source has the highest seqno there is: reset source {source[0]!r} of the topic first"
                    raise InvalidInput("prod_client", repr(name)[:100], rule)
                submission = Submission([_message(source, client.count + 1, value, partition)])
                # Until the outcome of the message is known, the count is unknown too.
                number, client.count = client.count, None
                receipts = opened.topic.intake.write(submission, timeout_seconds)
                if not np.any(np.isin(receipts.outcome, (DUPLICATE_BY_SOURCE, CONFLICT))):
                    client.count = number + receipts.written
                    return submission.delay_seconds

    def count(self, name: str, topics: list[str]) -> int:
        """The number of messages of a client in these topics; a topic deleted meanwhile counts as 0."""
        source, total = _source(name), 0
        for topic in topics:
            opened = self._topics.find(topic)
            try:
                total += _count(opened, source)
            except HeadraceError:
                if opened.topic.ended is None:
                    raise
        return total

    def _client(self, topic_id: int, name: str) -> _Client:
        with self._lock:
            client = self._clients.pop((topic_id, name), None) or _Client()
            self._clients[topic_id, name] = client
            if len(self._clients) > _REMEMBERED_MAX:
                del self._clients[next(iter(self._clients))]
            return client


def producer_id_of(name: str) -> str:
    """The producer id that counts the messages of a client."""
    return PREFIX + check_id("prod_client", name)


def _source(name: str) -> Source:
    return producer_id_of(name), ""


def _count(opened: OpenTopic, source: Source) -> int:
    return opened.topic.between_commits(lambda state: state.sources.last_seqno(source)) or 0


def _message(source: Source, seqno: int, value: bytes, partition: int | None) -> pa.RecordBatch:
    columns = {"value": value, "producer_id": source[0], "seqno": seqno}
    fields = [STORED_SCHEMA.field(name) for name in columns]
    arrays = [pa.array([columns[each.name]], each.type) for each in fields]
    if partition is not None:
        fields, arrays = [*fields, pa.field("partition", pa.int32())], [*arrays, pa.array([partition], pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

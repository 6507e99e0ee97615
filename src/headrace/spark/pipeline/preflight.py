"""A look at the broker before anything runs: topics that are missing, and sink ids that would be taken for done.

A look changes nothing: topics are made by `make_topics`, when a run begins.

Of a sink only that is asked which needs no other right than to publish: the token of a pipeline need not read what it
writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.client import Client, connect
from headrace.core.errors import InvalidInput, TopicNotFound
from headrace.spark.pipeline.description import DeadTopic, Description, TopicSink, TopicSource
from headrace.spark.staging import make_topic

_TIMEOUT_SECONDS: Final = 10.0
_NOBODY: Final = "headrace-pipeline"


def check_topics(description: Description) -> None:
    """Refuse what the broker does not have, unless it is to be made by a run."""
    for part in (description.source, description.sink, description.dead_letters):
        if isinstance(part, TopicSource | TopicSink | DeadTopic):
            with _connected(description, part) as client:
                _check_topic(client, part)


def make_topics(description: Description) -> None:
    """Make what is missing and is to be made. Who has what is there already needs no right for that."""
    for part in (description.sink, description.dead_letters):
        if isinstance(part, TopicSink | DeadTopic) and part.partitions is not None:
            with _connected(description, part) as client:
                try:
                    client.last_commit(part.topic, _NOBODY)
                except TopicNotFound:
                    make_topic(client, part.topic, part.partitions)


def check_sink_id(description: Description, sink_id: str) -> None:
    """Refuse an id that has published under another checkpoint.

    Batches of a new checkpoint begin at 0, and the broker would take them for those that it has.
    """
    for part in (description.sink, description.dead_letters):
        if isinstance(part, TopicSink | DeadTopic):
            with _connected(description, part) as client:
                _check_unused(client, part.topic, sink_id)


def _check_topic(client: Client, part: TopicSource | TopicSink | DeadTopic) -> None:
    if isinstance(part, TopicSource):
        client.describe_topic(part.topic)
        return
    try:
        client.last_commit(part.topic, _NOBODY)
    except TopicNotFound:
        if part.partitions is None:
            raise


def _check_unused(client: Client, topic: str, sink_id: str) -> None:
    try:
        number = client.last_commit(topic, sink_id)
    except TopicNotFound:
        # It is to be made, so nobody has published to it.
        return
    if number is not None:
        rule = (
            f"it has published up to batch {number} to {topic!r} from another checkpoint, and the batches of this one "
            "would be taken for those: go on with that checkpoint, or choose another id"
        )
        raise InvalidInput("sink.sink_id", sink_id, rule)


@contextmanager
def _connected(description: Description, part: TopicSource | TopicSink | DeadTopic) -> Iterator[Client]:
    server = description.server
    with connect(
        description.url_of(part), server.token, root_certificates=server.ca, timeout_seconds=_TIMEOUT_SECONDS
    ) as client:
        yield client

"""The Python client of cursus, as programs use it, quick enough for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cursus import Consumer, ConsumerConfig, ConsumerMode, Message, Producer, ProducerConfig

PATIENCE_SECONDS = 60.0


@contextmanager
def producer(address: str, topic: str, **options: Any) -> Iterator[Producer]:
    """A producer, which has sent everything when this ends."""
    settings = {
        "partitions": 2,
        "linger_ms": 1,
        "max_backoff_ms": 100,
        "flush_timeout_ms": int(PATIENCE_SECONDS * 1000),
    }
    with Producer(ProducerConfig(topic=topic, brokers=[address], **(settings | options))) as made:
        yield made
        made.flush()


@contextmanager
def consumer(
    address: str, topic: str, handle: Callable[[Message], None], mode: ConsumerMode = ConsumerMode.STREAMING
) -> Iterator[Consumer]:
    """A consumer of the group `g` in a thread of its own; it has left the group when this ends."""
    config = ConsumerConfig(
        topic=topic,
        brokers=[address],
        group_id="g",
        mode=mode,
        heartbeat_interval_ms=200,
        auto_commit_interval_s=0.2,
        # A commit that is made by the thread that handles messages ends that thread if it fails.
        commit_batch_size=1_000_000,
    )
    made = Consumer(config)
    thread = threading.Thread(target=made.start, args=[handle], name="consumer")
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()

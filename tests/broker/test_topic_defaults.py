"""What a topic has when nobody says otherwise: set for the store."""

from __future__ import annotations

import pytest

from headrace.broker import Broker, BrokerSettings, TopicDefaults
from headrace.core.errors import InvalidInput
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.open import open_store
from tests.broker.messages import batch
from tests.broker.sites import Site


def test_nothing_is_set_by_default() -> None:
    assert TopicDefaults().settings() == DEFAULT_SETTINGS


def test_topics_get_the_defaults_of_the_store_unless_they_have_settings(site: Site) -> None:
    defaults = TopicDefaults(partitions=3, retention_seconds=60, deduplication="payload", message_bytes_max=1_000)
    with Broker(open_store(site.url), BrokerSettings(), site.clock, topic_defaults=defaults) as broker:
        plain = broker.create_topic("plain")
        assert (plain.partitions, plain.settings.retention_seconds, plain.settings.message_bytes_max) == (3, 60, 1_000)
        told = broker.create_topic("told", partitions=1, retention_seconds=None, deduplication="off")
        assert (told.partitions, told.settings.retention_seconds, told.settings.deduplication) == (1, None, "off")
        assert told.settings.message_bytes_max == 1_000
        # Created by whoever registers, and again with what it has.
        broker.registrations.register_producer("queue")
        assert broker.describe_topic("queue").partitions == 3
        assert broker.create_topic("plain") == plain
        broker.publish("plain", batch(b"a", b"a"))
        assert sum(end for _, end in broker.offsets("plain").values()) == 1


@pytest.mark.parametrize("given", [{"retention_seconds": -1}, {"message_bytes_max": 0}])
def test_defaults_that_no_topic_may_have_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        TopicDefaults(**given)  # type: ignore[arg-type]


def test_the_window_holds_as_many_payloads_as_the_topic_says(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", deduplication="payload", deduplication_window_messages=10)

    def written(*numbers: int) -> list[int]:
        receipts = [broker.publish("orders", batch(b"%d" % number)) for number in numbers]
        return [receipt.written for receipt in receipts]

    assert written(*range(10)) == [1] * 10
    assert written(0, 9) == [0, 0]
    # One more than there is room for: the oldest are forgotten early, and counted.
    assert written(10, 0) == [1, 1]
    assert broker.counters.snapshot()["payloads_forgotten_early"] > 0
    broker.alter_topic("orders", deduplication_window_messages=1_000)
    assert written(*range(100, 200)) == [1] * 100
    assert written(*range(100, 200)) == [0] * 100
    if site.engine.is_durable:
        broker = site.reopen(broker)
        assert written(100, 150, 199) == [0, 0, 0]
    with pytest.raises(InvalidInput):
        broker.alter_topic("orders", deduplication_window_messages=0)

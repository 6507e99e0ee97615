"""Topics, settings and groups by the administration clients of aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka as confluent
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as AdminTopic
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.test_clients import PATIENCE_SECONDS, produce


def grouped(site: Site, topic: str) -> None:
    """A group of the topic's name that committed 2 of 3 messages."""
    produce(site, topic, 3)
    consumer = confluent.Consumer({"bootstrap.servers": site.bootstrap, "group.id": topic})
    consumer.commit(offsets=[confluent.TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()


def test_kafka_python(site: Site) -> None:
    admin = KafkaAdminClient(bootstrap_servers=site.bootstrap)
    try:
        admin.create_topics([NewTopic("by-python", 1, 1, topic_configs={"retention.ms": "60000"})])
        assert site.broker.describe_topic("by-python").settings.retention_seconds == 60
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "by-python", {"retention.ms": "90000"})])
        assert site.broker.describe_topic("by-python").settings.retention_seconds == 90
        grouped(site, "by-python")
        assert "by-python" in [each["group_id"] for each in admin.list_groups()]
        place = kafka.TopicPartition("by-python", 0)
        assert admin.list_group_offsets(["by-python"])["by-python"][place].offset == 2
        admin.create_partitions({"by-python": NewPartitions(3)})
        assert len(site.broker.offsets("by-python")) == 3
        admin.delete_groups(["by-python"])
        assert site.broker.list_groups("by-python") == []
        admin.delete_topics(["by-python"])
        assert "by-python" not in admin.list_topics()
    finally:
        admin.close()


# As Kafka Streams and Connect set them on the topics that they create.
STORAGE_CONFIGS = {
    "segment.bytes": "52428800",
    "segment.ms": "600000",
    "delete.retention.ms": "1000",
    "flush.messages": "10",
    "flush.ms": "1000",
    "min.insync.replicas": "2",
    "compression.type": "zstd",
    "message.timestamp.before.max.ms": "60000",
    "message.timestamp.after.max.ms": "60000",
    "min.cleanable.dirty.ratio": "0.25",
}


def shown(admin: AdminClient, topic: str) -> dict[str, Any]:
    (described,) = admin.describe_configs([confluent.admin.ConfigResource("TOPIC", topic)]).values()
    entries: dict[str, Any] = described.result(PATIENCE_SECONDS)
    return entries


def altered(admin: AdminClient, topic: str, **changes: tuple[confluent.admin.AlterConfigOpType, str | None]) -> None:
    entries = [
        confluent.admin.ConfigEntry(name.replace("_", "."), value, incremental_operation=operation)
        for name, (operation, value) in changes.items()
    ]
    resource = confluent.admin.ConfigResource("TOPIC", topic, incremental_configs=entries)
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(PATIENCE_SECONDS)


def test_configs_that_tune_storage_are_kept_and_shown(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.create_topics([AdminTopic("tuned", 1, config=STORAGE_CONFIGS)])["tuned"].result(PATIENCE_SECONDS)
    assert site.broker.describe_topic("tuned").settings.kafka_configs == STORAGE_CONFIGS
    found = shown(admin, "tuned")
    assert {name: found[name].value for name in STORAGE_CONFIGS} == STORAGE_CONFIGS
    assert not any(found[name].is_default for name in STORAGE_CONFIGS)
    assert (found["segment.jitter.ms"].value, found["segment.jitter.ms"].is_default) == ("0", True)
    change, delete = confluent.admin.AlterConfigOpType.SET, confluent.admin.AlterConfigOpType.DELETE
    altered(
        admin, "tuned", segment_bytes=(change, "1048576"), segment_ms=(delete, None), retention_ms=(change, "60000")
    )
    found = shown(admin, "tuned")
    assert [found[name].value for name in ("segment.bytes", "segment.ms")] == ["1048576", "604800000"]
    assert found["delete.retention.ms"].value == "1000"
    for name, value, said in (
        ("cleanup_policy", "compact", "topics are not compacted here"),
        ("segment_bytes", "few", "segment.bytes"),
        ("compression_type", "brotli", "compression.type"),
    ):
        with pytest.raises(confluent.KafkaException) as caught:
            altered(admin, "tuned", **{name: (change, value)})
        assert caught.value.args[0].name() == "INVALID_CONFIG" and said in caught.value.args[0].str()


def test_a_topic_that_exists_is_found_before_its_configs_are_judged(site: Site) -> None:
    """Programs that create what they need take an existing topic as good."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    site.broker.create_topic("present")
    for is_trial in (True, False):
        topic = AdminTopic("present", 1, config={"cleanup.policy": "compact"})
        with pytest.raises(confluent.KafkaException) as caught:
            admin.create_topics([topic], validate_only=is_trial)["present"].result(PATIENCE_SECONDS)
        assert caught.value.args[0].name() == "TOPIC_ALREADY_EXISTS"


def test_aiokafka(site: Site) -> None:
    asyncio.run(_aiokafka(site))


async def _aiokafka(site: Site) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=site.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioTopic("by-aio", 1, 1, topic_configs={"retention.ms": "60000"})])
        assert site.broker.describe_topic("by-aio").settings.retention_seconds == 60
        await admin.alter_configs([AioResource(AioResourceType.TOPIC, "by-aio", {"retention.ms": "90000"})])
        assert site.broker.describe_topic("by-aio").settings.retention_seconds == 90
        await asyncio.to_thread(grouped, site, "by-aio")
        assert "by-aio" in [each[0] for each in await admin.list_consumer_groups()]
        place = aiokafka.TopicPartition("by-aio", 0)
        assert (await admin.list_consumer_group_offsets("by-aio"))[place].offset == 2
        await admin.create_partitions({"by-aio": AioPartitions(3)})
        assert len(site.broker.offsets("by-aio")) == 3
        await admin.delete_topics(["by-aio"])
        assert "by-aio" not in await admin.list_topics()
    finally:
        await admin.close()

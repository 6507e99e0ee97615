"""Topics, settings and groups by the administration clients of aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka as confluent
import kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.test_clients import produce


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

"""APIs that few clients use, request by request: topic ids, sessions, offsets to forget, configs, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import aiokafka
import confluent_kafka as confluent
import kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headrace.protocols.kafka.apis.cluster import PARTITIONS_PER_ANSWER
from headrace.protocols.kafka.apis.topic_ids import topic_uuid
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

FETCH, METADATA, FIND_COORDINATOR, DELETE_TOPICS, INIT_PRODUCER_ID = 1, 3, 10, 20, 22
ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_TOPIC_PARTITIONS = 33, 47, 75
JOIN_GROUP, LEAVE_GROUP, CREATE_TOPICS = 11, 13, 19
NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, POLICY_VIOLATION, UNKNOWN_ID = 0, 1, 3, 44, 100
DELETE_RECORDS, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, DESCRIBE_CLUSTER = 21, 2, 8, 9, 15, 60
GROUP_ID_NOT_FOUND = 69
PATIENCE_SECONDS = 120.0


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as raw:
        yield raw


def publish(site: Site, topic: str, *values: bytes) -> None:
    site.broker.publish(topic, pa.record_batch({"value": pa.array(values, pa.binary())}))


def uuid_of(site: Site, topic: str) -> UUID:
    return topic_uuid(site.broker.reader(topic).topic_id)


class Fetcher:
    """A client with a fetch session on one topic, named by id."""

    def __init__(self, client: RawClient, topic: UUID) -> None:
        self._client = client
        self._topic = topic
        self.session = 0
        self.epoch = 0

    def fetch(self, offsets: dict[int, int], forgotten: tuple[int, ...] = (), **more: Any) -> SimpleNamespace:
        """What is answered to the next request of the session."""
        partitions = [
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for partition, offset in offsets.items()
        ]
        place = {"topic_id": self._topic}
        fields = {
            "max_wait": 0,
            "min_bytes": 1,
            "session_id": self.session,
            "session_epoch": self.epoch,
            "topics": [place | {"partitions": partitions}] if partitions else [],
            "forgotten_topics_data": [place | {"partitions": list(forgotten)}] if forgotten else [],
            **more,
        }
        answer = self._client.call(FETCH, 18, **fields)
        if answer.error_code == NONE:
            self.session, self.epoch = answer.session_id, self.epoch + 1
        return answer


def ends(answer: SimpleNamespace) -> dict[int, int]:
    return {each.partition_index: each.high_watermark for topic in answer.responses for each in topic.partitions}


def test_a_session_is_answered_only_news(site: Site, client: RawClient) -> None:
    site.broker.create_topic("session", 3)
    fetcher = Fetcher(client, uuid_of(site, "session"))
    assert ends(fetcher.fetch({0: 0, 1: 0, 2: 0})) == {0: 0, 1: 0, 2: 0}
    assert fetcher.session > 0
    assert fetcher.fetch({}).responses == []
    publish(site, "session", b"a", b"b", b"c")
    answer = fetcher.fetch({})
    assert ends(answer) == {0: 1, 1: 1, 2: 1}
    assert all(each.records for each in answer.responses[0].partitions)
    # Partition 0 was read; the others still have the same message for those who do not move on.
    assert ends(fetcher.fetch({0: 1}, forgotten=(1,))) == {2: 1}
    assert ends(fetcher.fetch({2: 1})) == {}
    assert fetcher.fetch({}, session_epoch=1).error_code == 71
    with RawClient(site.port) as other:
        again = Fetcher(other, uuid_of(site, "session"))
        again.session, again.epoch = fetcher.session, fetcher.epoch
        # Sessions outlive connections.
        assert again.fetch({}).session_id == fetcher.session
        assert again.fetch({0: 1}, session_epoch=-1).session_id == 0
        assert again.fetch({}).error_code == 70


def test_topics_are_named_by_id(site: Site, client: RawClient) -> None:
    site.broker.create_topic("named")
    publish(site, "named", b"x")
    topic_id = uuid_of(site, "named")
    (described,) = client.call(METADATA, 13, topics=[{"topic_id": topic_id, "name": None}]).topics
    assert (described.name, described.topic_id) == ("named", topic_id)
    strange = [topic_uuid(999_999), UUID(int=0), UUID(int=7)]
    unknown = client.call(METADATA, 13, topics=[{"topic_id": each, "name": None} for each in strange]).topics
    assert [each.error_code for each in unknown] == [UNKNOWN_ID] * 3
    for each in strange:
        (found,) = Fetcher(client, each).fetch({0: 0}).responses
        assert (found.topic_id, [part.error_code for part in found.partitions]) == (each, [UNKNOWN_ID])
    for name, code in (("named", NONE), (None, UNKNOWN_ID)):
        doomed = [{"name": None, "topic_id": topic_id}]
        (deleted,) = client.call(DELETE_TOPICS, 6, topics=doomed, timeout=1000).responses
        assert (deleted.name, deleted.error_code) == (name, code)
    site.broker.create_topic("named")
    (gone,) = Fetcher(client, topic_id).fetch({0: 0}).responses
    assert gone.partitions[0].error_code == UNKNOWN_ID


def test_partitions_of_topics_come_in_pages(site: Site, client: RawClient) -> None:
    names = ["pages-a", "pages-b", "pages-c"]
    for name in names:
        site.broker.create_topic(name, 4)
    asked = {"topics": [{"name": name} for name in [*names, "pages-none"]], "response_partition_limit": 6}
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, cursor=cursor, **asked)
        seen += [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        assert sum(len(topic.partitions) for topic in page.topics) <= 6
        if page.next_cursor is None:
            break
        cursor = vars(page.next_cursor)
    assert seen == [(name, partition) for name in names for partition in range(4)]
    assert page.topics[-1].error_code == UNKNOWN_TOPIC
    everything = client.call(
        DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], cursor=None, response_partition_limit=PARTITIONS_PER_ANSWER
    )
    assert set(names) <= {topic.name for topic in everything.topics}
    # The Java client fails at null.
    partitions = [each for topic in everything.topics for each in topic.partitions]
    assert all(each.eligible_leader_replicas == each.last_known_elr == [] for each in partitions)


def test_a_created_topic_is_answered_with_its_configs(client: RawClient) -> None:
    topic = {"name": "with-configs", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
    (made,) = client.call(CREATE_TOPICS, 7, topics=[topic], timeout=1000, validate_only=False).topics
    assert made.error_code == NONE
    assert "retention.ms" in {each.name for each in made.configs}, "kafka-topics fails at null"


def deleted_offsets(client: RawClient, group: str, topic: str, *partitions: int) -> tuple[int, list[int]]:
    named = [{"name": topic, "partitions": [{"partition_index": partition} for partition in partitions]}]
    answer = client.call(OFFSET_DELETE, 0, group_id=group, topics=named)
    return answer.error_code, [each.error_code for found in answer.topics for each in found.partitions]


def test_committed_offsets_are_forgotten(site: Site, client: RawClient) -> None:
    site.broker.create_topic("forgetful", 3)
    publish(site, "forgetful", b"a", b"b", b"c")
    site.broker.register_group("forgetful", "forgetters")
    site.broker.commit_offsets("forgetful", "forgetters", {0: 1, 1: 1, 2: 1})
    assert deleted_offsets(client, "forgetters", "forgetful", 0, 2, 7) == (NONE, [NONE, NONE, UNKNOWN_TOPIC])
    assert site.broker.committed("forgetful", "forgetters") == {1: 1}
    assert deleted_offsets(client, "nobody", "forgetful", 0) == (69, [])
    assert deleted_offsets(client, "forgetters", "no-topic", 0) == (NONE, [UNKNOWN_TOPIC])
    # A topic in which the group has nothing is fine; one that its members read is not.
    site.broker.create_topic("unread")
    assert deleted_offsets(client, "forgetters", "unread", 0) == (NONE, [NONE])
    site.broker.join_group("forgetful", "forgetters", "native")
    assert deleted_offsets(client, "forgetters", "forgetful", 1) == (NONE, [86])
    site.broker.leave_group("forgetful", "forgetters", "native")


def test_offsets_that_kafka_members_read_are_kept(site: Site, client: RawClient) -> None:
    site.broker.create_topic("subscribed")
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x0asubscribed" + b"\xff\xff\xff\xff"
    fields: dict[str, Any] = {"session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": ""}
    for group, kind, metadata in (("readers", "consumer", subscription), ("workers", "connect", b"")):
        named = {"group_id": group, "protocol_type": kind, "protocols": [{"name": "p", "metadata": metadata}]}
        joined = client.call(JOIN_GROUP, 3, **fields, **named)
        assert joined.error_code == NONE
        expected = (NONE, [86]) if kind == "consumer" else (68, [])
        assert deleted_offsets(client, group, "subscribed", 0) == expected
        client.call(LEAVE_GROUP, 1, group_id=group, member_id=joined.member_id)


def altered(client: RawClient, topic: str, is_trial: bool = False, **configs: str) -> int:
    named = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
    resources = [{"resource_type": 2, "resource_name": topic, "configs": named}]
    code: int = client.call(ALTER_CONFIGS, 2, resources=resources, validate_only=is_trial).responses[0].error_code
    return code


def test_all_configs_are_replaced_at_once(site: Site, client: RawClient) -> None:
    site.broker.create_topic("replaced", retention_seconds=60, retention_bytes=10**9, deduplication="off")
    assert altered(client, "replaced", is_trial=True, retention_ms="1000") == NONE
    assert site.broker.describe_topic("replaced").settings.retention_seconds == 60
    assert altered(client, "replaced", retention_ms="120000", cleanup_policy="delete") == NONE
    settings = site.broker.describe_topic("replaced").settings
    # What was not named has its default again; what Kafka has no name for stays.
    assert (settings.retention_seconds, settings.retention_bytes, settings.deduplication) == (120, None, "off")
    assert altered(client, "replaced", segment_bytes="14", segment_ms="1") == NONE
    assert altered(client, "replaced", segment_ms="2") == NONE
    assert site.broker.describe_topic("replaced").settings.kafka_configs == {"segment.ms": "2"}
    assert altered(client, "replaced", cleanup_policy="compact") == 40
    assert altered(client, "no-topic", retention_ms="1000") == UNKNOWN_TOPIC
    assert altered(client, "no-topic", is_trial=True, retention_ms="1000") == UNKNOWN_TOPIC


def test_consumers_see_the_brokers_time_if_the_topic_says_so(site: Site, client: RawClient) -> None:
    site.broker.create_topic("timed")
    assert altered(client, "timed", message_timestamp_type="LogAppendTime") == NONE
    assert altered(client, "timed", message_timestamp_type="Sundial") == 40
    assert site.broker.describe_topic("timed").settings.timestamp_type == "broker"
    producer = confluent.Producer({"bootstrap.servers": site.bootstrap})
    for number in range(3):
        producer.produce("timed", b"%d" % number, timestamp=1000 + number)
        assert producer.flush(PATIENCE_SECONDS) == 0
    stored = site.broker.fetch("timed", 0, 0)
    written = [time // 1000 for time in stored.column("timestamp").cast("int64").to_pylist()]

    def read() -> list[tuple[int, int]]:
        consumer = confluent.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "timed"})
        consumer.assign([confluent.TopicPartition("timed", 0, 0)])
        found = [consumer.poll(PATIENCE_SECONDS).timestamp() for _ in range(3)]
        consumer.close()
        return found

    assert read() == [(confluent.TIMESTAMP_LOG_APPEND_TIME, time) for time in written]
    # What producers said is kept.
    assert altered(client, "timed", message_timestamp_type="CreateTime") == NONE
    assert read() == [(confluent.TIMESTAMP_CREATE_TIME, 1000 + number) for number in range(3)]


def test_offsets_are_committed_by_id(site: Site, client: RawClient) -> None:
    site.broker.create_topic("numbers")
    publish(site, "numbers", b"a", b"b")
    known, other = uuid_of(site, "numbers"), UUID(int=7)
    partitions = [{"partition_index": 0, "committed_offset": 2, "committed_metadata": ""}]
    topics = [{"topic_id": topic, "partitions": partitions} for topic in (known, other)]
    member = {"generation_id_or_member_epoch": -1, "member_id": ""}
    answer = client.call(OFFSET_COMMIT, 10, group_id="by-id", topics=topics, **member)
    codes = [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics]
    assert codes == [(known, NONE), (other, UNKNOWN_ID)]
    assert site.broker.committed("numbers", "by-id") == {0: 2}
    asked = [{"topic_id": topic, "partition_indexes": [0]} for topic in (known, other)]
    for wanted, found in ((asked, [(known, 2, NONE), (other, -1, UNKNOWN_ID)]), (None, [(known, 2, NONE)])):
        groups = [{"group_id": "by-id", "topics": wanted}]
        (group,) = client.call(OFFSET_FETCH, 10, groups=groups, require_stable=False).groups
        told = [(topic.topic_id, *topic.partitions) for topic in group.topics]
        assert [(topic, each.committed_offset, each.error_code) for topic, each in told] == found


def test_the_newest_versions_have_more_to_say(site: Site, client: RawClient) -> None:
    (group,) = client.call(DESCRIBE_GROUPS, 6, groups=["no-such-group"]).groups
    assert (group.error_code, group.group_state) == (GROUP_ID_NOT_FOUND, "Dead")
    (group,) = client.call(DESCRIBE_GROUPS, 5, groups=["no-such-group"]).groups
    assert (group.error_code, group.group_state) == (NONE, "Dead")
    cluster = client.call(DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=False, endpoint_type=1)
    assert [broker.is_fenced for broker in cluster.brokers] == [False]
    assert client.call(INIT_PRODUCER_ID, 6, transaction_timeout=1000).error_code == NONE
    site.broker.create_topic("dated")
    publish(site, "dated", b"a")
    for time_ms, offset in ((-6, -1), (-5, -1), (-4, 0), (-3, 0), (-2, 0), (-1, 1)):
        partitions = [{"partition_index": 0, "timestamp": time_ms, "current_leader_epoch": -1}]
        topics = [{"name": "dated", "partitions": partitions}]
        (topic,) = client.call(LIST_OFFSETS, 11, replica_id=-1, isolation_level=0, topics=topics, timeout=100).topics
        assert topic.partitions[0].offset == offset


def test_records_that_cannot_be_deleted(site: Site, client: RawClient) -> None:
    site.broker.create_topic("held")
    site.broker.register_group("held", "billing", important=True)
    publish(site, "held", b"a", b"b")
    expected = {
        (0, 1): (POLICY_VIOLATION, -1),
        (0, 3): (OFFSET_OUT_OF_RANGE, -1),
        (0, -2): (OFFSET_OUT_OF_RANGE, -1),
        (7, 0): (UNKNOWN_TOPIC, -1),
        (-1, 0): (UNKNOWN_TOPIC, -1),
        (0, 0): (NONE, 0),
    }
    for version in range(3):
        for (partition, offset), told in expected.items():
            partitions = [{"partition_index": partition, "offset": offset}]
            topics = [{"name": name, "partitions": partitions} for name in ("held", "nowhere")]
            answer = client.call(DELETE_RECORDS, version, topics=topics, timeout=1000)
            here, there = (topic.partitions for topic in answer.topics)
            assert [(each.error_code, each.low_watermark) for each in (*here, *there)] == [told, (UNKNOWN_TOPIC, -1)]
    site.broker.commit_offsets("held", "billing", {0: 2})
    topics = [{"name": "held", "partitions": [{"partition_index": 0, "offset": -1}]}]
    assert client.call(DELETE_RECORDS, 2, topics=topics, timeout=1000).topics[0].partitions[0].low_watermark == 2


def test_partitions_that_a_group_holds_do_not_keep_others(site: Site, client: RawClient) -> None:
    """Those of a topic are deleted together, and each is answered by itself all the same."""
    site.broker.create_topic("partly-held", 7)
    site.broker.register_group("partly-held", "billing", important=True)
    for _ in range(7):
        publish(site, "partly-held", *[b"x"] * 7)
    site.broker.commit_offsets("partly-held", "billing", {number: 0 if number in (2, 5) else 7 for number in range(7)})
    partitions = [{"partition_index": number, "offset": -1} for number in range(7)]
    answer = client.call(DELETE_RECORDS, 2, topics=[{"name": "partly-held", "partitions": partitions}], timeout=1000)
    told = [(each.partition_index, each.error_code, each.low_watermark) for each in answer.topics[0].partitions]
    held, deleted = (POLICY_VIOLATION, -1), (NONE, 7)
    assert told == [(number, *(held if number in (2, 5) else deleted)) for number in range(7)]


def test_transactions_are_refused(site: Site, client: RawClient) -> None:
    assert client.call(INIT_PRODUCER_ID, 5, transactional_id="tx", transaction_timeout=1000).error_code == 50
    found = client.call(FIND_COORDINATOR, 5, key_type=1, coordinator_keys=["tx"]).coordinators[0]
    assert (found.error_code, found.port) == (NONE, site.port)
    producer = confluent.Producer({"bootstrap.servers": site.bootstrap, "transactional.id": "tx"})
    with pytest.raises(confluent.KafkaException) as caught:
        producer.init_transactions(PATIENCE_SECONDS)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].name() == "INVALID_TRANSACTION_TIMEOUT"
    for init in (init_by_kafka_python, init_by_aiokafka):
        with pytest.raises(Exception, match="InvalidTransactionTimeout"):
            init(site)


def init_by_kafka_python(site: Site) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=site.bootstrap, transactional_id="tx")
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=0)


def init_by_aiokafka(site: Site) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=site.bootstrap, transactional_id="tx")
        try:
            await producer.start()
        except Exception as error:
            raise RuntimeError(type(error).__name__) from error
        finally:
            await producer.stop()

    asyncio.run(start())


def test_share_groups_are_refused(client: RawClient) -> None:
    refused = client.call(FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["g:id:0"]).coordinators[0]
    assert (refused.error_code, refused.error_message) == (42, "share groups are not supported")
    served = {each.api_key for each in client.call(18, 4, client_software_name="raw").api_keys}
    # ShareGroupHeartbeat to ShareAcknowledge: clients that need them are told by their absence.
    assert not served & set(range(76, 80))


def test_acls_are_refused(site: Site, client: RawClient) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    place = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ann", "*")
    given = (AclOperation.READ, AclPermissionType.ALLOW)
    for future in admin.create_acls([AclBinding(*place, *given)]).values():
        with pytest.raises(confluent.KafkaException) as caught:
            future.result(PATIENCE_SECONDS)
        assert caught.value.args[0].name() == "SECURITY_DISABLED"
        assert "headrace token" in caught.value.args[0].str()
    (deleted,) = client.call(31, 3, filters=[{"resource_type_filter": 2}]).filter_results
    described = client.call(29, 3, resource_type_filter=2)
    assert [each.error_code for each in (deleted, described)] == [54, 54]

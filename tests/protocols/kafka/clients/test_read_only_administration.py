"""What pages for administrators ask: sizes, configs of servers, rights, replicas, elections and the quorum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka as confluent
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaResourceType
from kafka.errors import ClusterAuthorizationFailedError

from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.test_clients import PATIENCE_SECONDS, produce

DESCRIBE_CONFIGS, BROKER = 32, 4
NONE, INVALID_REQUEST = 0, 42


@pytest.fixture
def admin(site: Site) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=site.bootstrap)
    yield client
    client.close()


def test_sizes_of_partitions(site: Site, admin: KafkaAdminClient) -> None:
    site.broker.create_topic("sized", 3)
    site.broker.create_topic("empty")
    for _ in range(4):
        produce(site, "sized", 3)
    (directories,) = [each["log_dirs"] for each in admin.describe_log_dirs()]
    (found,) = [topic for each in directories for topic in each["topics"] if topic["name"] == "sized"]
    sizes = {each["partition_index"]: each["partition_size"] for each in found["partitions"]}
    stored = site.broker.describe_topic("sized").bytes_stored
    counts = {number: end - start for number, (start, end) in site.broker.offsets("sized").items()}
    assert sizes.keys() == {0, 1, 2}
    assert sum(counts.values()) == 12 and abs(sum(sizes.values()) - stored) <= len(sizes)
    assert all(abs(sizes[number] - stored * count / 12) <= 1 for number, count in counts.items())
    assert {each["error_code"] for each in directories} == {0}


def test_the_configs_of_a_server(site: Site) -> None:
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    (described,) = client.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    found = {name: each.value for name, each in described.result(PATIENCE_SECONDS).items()}
    assert found["delete.topic.enable"] == found["auto.create.topics.enable"] == "true"
    assert (found["num.partitions"], found["default.replication.factor"], found["broker.id"]) == ("1", "1", "0")
    assert (found["log.retention.ms"], found["log.cleanup.policy"]) == ("-1", "delete")
    with RawClient(site.port) as raw:
        for name, codes in (("7", INVALID_REQUEST), ("", NONE)):
            resource = {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
            (answer,) = raw.call(DESCRIBE_CONFIGS, 4, resources=[resource]).results
            assert (answer.error_code, answer.configs) == (codes, [])


def test_elections_are_not_needed(site: Site) -> None:
    site.broker.create_topic("elected")
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    places = [confluent.TopicPartition("elected", number) for number in (0, 7)]
    results = client.elect_leaders(confluent.ElectionType.PREFERRED, places).result(PATIENCE_SECONDS)
    codes = {place.partition: error.name() for place, error in results.items()}
    assert codes == {0: "ELECTION_NOT_NEEDED", 7: "UNKNOWN_TOPIC_OR_PART"}
    assert client.elect_leaders(confluent.ElectionType.PREFERRED, None).result(PATIENCE_SECONDS) == {}


def test_nothing_is_being_moved(admin: KafkaAdminClient) -> None:
    assert admin.list_partition_reassignments() == {}


def test_the_quorum_is_the_servers(site: Site, admin: KafkaAdminClient) -> None:
    quorum: Any = admin.describe_metadata_quorum()
    assert "__cluster_metadata" in str(quorum) and str(site.port) in str(quorum)


def test_what_a_caller_may_do_with_the_cluster(site: Site, admin: KafkaAdminClient) -> None:
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    cluster = client.describe_cluster(include_authorized_operations=True).result(PATIENCE_SECONDS)
    assert set(cluster.authorized_operations) == {
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
    assert client.describe_cluster().result(PATIENCE_SECONDS).authorized_operations is None
    told: Any = admin.describe_cluster()
    assert "IDEMPOTENT_WRITE" in str(told), told


def test_rights_of_tokens_are_shown_as_acls() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, KafkaSettings(), listeners):
        _, token = broker.access.create("admin", [("*", ["publish", "read", "manage"])])
        broker.access.create("till", [("orders/*", ["publish"]), ("a*b", ["read"])], groups=["billing"])
        _, other = broker.access.create("reader", [("orders/eu", ["read"])])

        def client(secret: str) -> AdminClient:
            settings = {"bootstrap.servers": f"127.0.0.1:{sockets.port_of(listeners)}", "sasl.username": "any"}
            return AdminClient(
                settings | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": secret}
            )

        def described(secret: str = token, **filters: Any) -> set[tuple[str, str, str, str, str]]:
            given = {
                "restype": ResourceType.ANY,
                "name": None,
                "resource_pattern_type": ResourcePatternType.ANY,
                "principal": None,
                "host": None,
                "operation": AclOperation.ANY,
                "permission_type": AclPermissionType.ANY,
            } | filters
            asking = client(secret)
            found = asking.describe_acls(AclBindingFilter(**given)).result(PATIENCE_SECONDS)
            return {
                (each.principal, each.restype.name, each.name, each.resource_pattern_type.name, each.operation.name)
                for each in found
            }

        till = described(principal="User:till")
        topic = ("User:till", "TOPIC", "orders/", "PREFIXED")
        odd, group = ("User:till", "TOPIC", "a*b", "LITERAL"), ("User:till", "GROUP", "billing", "LITERAL")
        assert till == {
            *((*topic, operation) for operation in ("WRITE", "DESCRIBE")),
            *((*odd, operation) for operation in ("READ", "DESCRIBE")),
            *((*group, operation) for operation in ("READ", "DESCRIBE")),
        }
        everything = described()
        assert till < everything and ("User:admin", "TOPIC", "*", "LITERAL", "ALTER_CONFIGS") in everything
        matching = {"name": "orders/eu", "resource_pattern_type": ResourcePatternType.MATCH}
        found = described(restype=ResourceType.TOPIC, operation=AclOperation.WRITE, **matching)
        assert {each[0] for each in found} == {"User:admin", "User:till"}
        literal = {"name": "orders/eu", "resource_pattern_type": ResourcePatternType.LITERAL}
        assert {each[0] for each in described(**literal)} == {"User:reader"}
        assert described(permission_type=AclPermissionType.DENY) == set()
        # librdkafka says nothing of an error here.
        assert described(other) == set()
        reader = KafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{sockets.port_of(listeners)}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="any",
            sasl_plain_password=other,
        )
        every = ResourcePatternFilter(KafkaResourceType.ANY, None, ACLResourcePatternType.ANY)
        try:
            with pytest.raises(ClusterAuthorizationFailedError):
                reader.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, every))
        finally:
            reader.close()

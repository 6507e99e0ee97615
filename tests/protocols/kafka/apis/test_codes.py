"""Codes that Apache Kafka answers with, where ours were others: `python -m tests.kafka_tools.comparison` found them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

JOIN_GROUP, DESCRIBE_GROUPS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS = 11, 15, 22, 32
DESCRIBE_QUORUM, DESCRIBE_CLUSTER, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 55, 60, 68, 69
JOINING = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000, "topic_partitions": []}
LIST = 7


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as client:
        yield client


def named(code: int) -> str:
    return ErrorCode(code).name


@pytest.mark.parametrize("missing", [{"rebalance_timeout": -1}, {"topic_partitions": None}])
def test_a_member_that_joins_names_its_timeout_and_partitions(client: RawClient, missing: dict[str, Any]) -> None:
    asked = {"group_id": str(uuid4()), "subscribed_topic_names": [], **JOINING, **missing}
    assert named(client.call(CONSUMER_HEARTBEAT, 0, **asked).error_code) == "invalid_request"


def test_a_group_without_members_has_no_state(client: RawClient) -> None:
    (group,) = client.call(CONSUMER_DESCRIBE, 0, group_ids=["absent"]).groups
    assert (named(group.error_code), group.group_state) == ("group_id_not_found", "")


def test_no_protocol_is_shown_before_all_have_joined(client: RawClient) -> None:
    joining = {"session_timeout": 30_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"}]
    group = {"group_id": str(uuid4()), "protocols": protocols, **joining}
    member_id = client.call(JOIN_GROUP, 5, member_id="", **group).member_id
    client.call(JOIN_GROUP, 5, member_id=member_id, **group)
    (described,) = client.call(DESCRIBE_GROUPS, 5, groups=[group["group_id"]]).groups
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")


def test_the_quorum_of_another_topic(client: RawClient) -> None:
    partitions = [{"partition_index": 0}]
    asked = [{"topic_name": name, "partitions": partitions} for name in ("__cluster_metadata", "other")]
    answer = client.call(DESCRIBE_QUORUM, 2, topics=asked)
    codes = [named(each.error_code) for topic in answer.topics for each in topic.partitions]
    assert (answer.error_code, codes) == (0, ["none", "unknown_topic_or_partition"])


def test_a_server_is_no_controller(client: RawClient) -> None:
    codes = [named(client.call(DESCRIBE_CLUSTER, 1, endpoint_type=kind).error_code) for kind in (1, 2, 3)]
    assert codes == ["none", "mismatched_endpoint_type", "unsupported_endpoint_type"]


def test_an_empty_transactional_id(client: RawClient) -> None:
    asked = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    answers = [client.call(INIT_PRODUCER_ID, 4, transactional_id=name, **asked) for name in ("", "t")]
    assert [named(each.error_code) for each in answers] == ["invalid_request", "invalid_transaction_timeout"]


def test_cleanup_policy_is_a_list(site: Site, client: RawClient) -> None:
    site.broker.create_topic("policies")
    asked = {"resource_type": 2, "resource_name": "policies", "configuration_keys": ["cleanup.policy"]}
    (described,) = client.call(DESCRIBE_CONFIGS, 4, resources=[asked]).results
    assert [(each.value, each.config_type) for each in described.configs] == [("delete", LIST)]

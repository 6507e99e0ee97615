"""The table of APIs: key, name, served versions, handler. What is not here is not served.

Versions begin where those of Apache Kafka 4 do, and end before those that no client needs yet. `docs/KAFKA.md` has the
same table for people.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.protocols.kafka.apis import acls, cluster, configs, topics
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.groups import administration, consumers, members
from headrace.protocols.kafka.apis.records import deletion, fetch, offsets, producers

Handler = Callable[[Call, Any], Awaitable[dict[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Api:
    """An API that is served."""

    name: str
    versions: range
    handler: Handler


async def _by_connection(call: Call, request: Any) -> dict[str, Any] | None:
    """Those that the connection itself answers."""
    raise AssertionError("the connection answers it")


PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

APIS: Final[dict[int, Api]] = {
    PRODUCE: Api("Produce", range(3, 14), _by_connection),
    FETCH: Api("Fetch", range(4, 19), fetch.fetch),
    2: Api("ListOffsets", range(1, 12), offsets.list_offsets),
    3: Api("Metadata", range(14), cluster.metadata),
    8: Api("OffsetCommit", range(2, 11), administration.offset_commit),
    9: Api("OffsetFetch", range(1, 11), administration.offset_fetch),
    10: Api("FindCoordinator", range(7), cluster.find_coordinator),
    11: Api("JoinGroup", range(10), members.join_group),
    12: Api("Heartbeat", range(5), members.heartbeat),
    13: Api("LeaveGroup", range(6), members.leave_group),
    14: Api("SyncGroup", range(6), members.sync_group),
    15: Api("DescribeGroups", range(7), administration.describe_groups),
    16: Api("ListGroups", range(6), administration.list_groups),
    SASL_HANDSHAKE: Api("SaslHandshake", range(2), _by_connection),
    API_VERSIONS: Api("ApiVersions", range(5), _by_connection),
    19: Api("CreateTopics", range(2, 8), topics.create_topics),
    20: Api("DeleteTopics", range(1, 7), topics.delete_topics),
    21: Api("DeleteRecords", range(3), deletion.delete_records),
    22: Api("InitProducerId", range(7), producers.init_producer_id),
    23: Api("OffsetForLeaderEpoch", range(2, 5), offsets.offset_for_leader_epoch),
    29: Api("DescribeAcls", range(1, 4), acls.describe_acls),
    30: Api("CreateAcls", range(1, 4), acls.create_acls),
    31: Api("DeleteAcls", range(1, 4), acls.delete_acls),
    32: Api("DescribeConfigs", range(1, 5), configs.describe_configs),
    33: Api("AlterConfigs", range(3), configs.alter_configs),
    SASL_AUTHENTICATE: Api("SaslAuthenticate", range(3), _by_connection),
    37: Api("CreatePartitions", range(4), topics.create_partitions),
    42: Api("DeleteGroups", range(3), administration.delete_groups),
    44: Api("IncrementalAlterConfigs", range(2), configs.incremental_alter_configs),
    47: Api("OffsetDelete", range(1), administration.offset_delete),
    60: Api("DescribeCluster", range(3), cluster.describe_cluster),
    68: Api("ConsumerGroupHeartbeat", range(2), consumers.consumer_group_heartbeat),
    69: Api("ConsumerGroupDescribe", range(2), consumers.consumer_group_describe),
    75: Api("DescribeTopicPartitions", range(1), cluster.describe_topic_partitions),
}

"""The table of APIs: key, name, served versions, handler. What is not here is not served.

Versions begin where those of Apache Kafka 4 do, and end before those that no client needs yet. `docs/kafka.md` has the
same table for people.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.limits import PARTITIONS_IN_STORE, TOPICS_IN_STORE
from headrace.protocols.kafka.apis import acls, cluster, configs, topics
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.groups import administration, consumers, members
from headrace.protocols.kafka.apis.groups import offsets as group_offsets
from headrace.protocols.kafka.apis.records import deletion, fetch, offsets, producers
from headrace.protocols.kafka.apis.servers import log_dirs, replicas

Handler = Callable[[Call, Any], Awaitable[dict[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Api:
    """An API that is served; the arrays of a request have at most `elements_max` elements together."""

    name: str
    versions: range
    handler: Handler
    elements_max: int


# Elements of a request about a whole store: its partitions with their topics;
# eight configs of each topic, as programs set them; each topic or group twice. And of those that say little.
_PARTITIONS: Final = PARTITIONS_IN_STORE + TOPICS_IN_STORE
_CONFIGS: Final = 9 * TOPICS_IN_STORE
_NAMES: Final = 2 * TOPICS_IN_STORE
_FEW: Final = 1_000


async def _by_connection(call: Call, request: Any) -> dict[str, Any] | None:
    """Those that the connection itself answers."""
    raise AssertionError("the connection answers it")


PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

APIS: Final[dict[int, Api]] = {
    PRODUCE: Api("Produce", range(3, 14), _by_connection, _NAMES),
    FETCH: Api("Fetch", range(4, 19), fetch.fetch, _PARTITIONS),
    2: Api("ListOffsets", range(1, 12), offsets.list_offsets, _PARTITIONS),
    3: Api("Metadata", range(14), cluster.metadata, _NAMES),
    8: Api("OffsetCommit", range(2, 11), group_offsets.offset_commit, _PARTITIONS),
    9: Api("OffsetFetch", range(1, 11), group_offsets.offset_fetch, _PARTITIONS),
    10: Api("FindCoordinator", range(7), cluster.find_coordinator, _NAMES),
    11: Api("JoinGroup", range(10), members.join_group, _FEW),
    12: Api("Heartbeat", range(5), members.heartbeat, _FEW),
    13: Api("LeaveGroup", range(6), members.leave_group, _NAMES),
    14: Api("SyncGroup", range(6), members.sync_group, _NAMES),
    15: Api("DescribeGroups", range(7), administration.describe_groups, _NAMES),
    16: Api("ListGroups", range(6), administration.list_groups, _FEW),
    SASL_HANDSHAKE: Api("SaslHandshake", range(2), _by_connection, _FEW),
    API_VERSIONS: Api("ApiVersions", range(5), _by_connection, _FEW),
    19: Api("CreateTopics", range(2, 8), topics.create_topics, _CONFIGS),
    20: Api("DeleteTopics", range(1, 7), topics.delete_topics, _NAMES),
    21: Api("DeleteRecords", range(3), deletion.delete_records, _PARTITIONS),
    22: Api("InitProducerId", range(7), producers.init_producer_id, _FEW),
    23: Api("OffsetForLeaderEpoch", range(2, 5), offsets.offset_for_leader_epoch, _PARTITIONS),
    29: Api("DescribeAcls", range(1, 4), acls.describe_acls, _FEW),
    30: Api("CreateAcls", range(1, 4), acls.create_acls, _NAMES),
    31: Api("DeleteAcls", range(1, 4), acls.delete_acls, _NAMES),
    32: Api("DescribeConfigs", range(1, 5), configs.describe_configs, _CONFIGS),
    33: Api("AlterConfigs", range(3), configs.alter_configs, _CONFIGS),
    35: Api("DescribeLogDirs", range(1, 5), log_dirs.describe_log_dirs, _PARTITIONS),
    SASL_AUTHENTICATE: Api("SaslAuthenticate", range(3), _by_connection, _FEW),
    37: Api("CreatePartitions", range(4), topics.create_partitions, _NAMES),
    42: Api("DeleteGroups", range(3), administration.delete_groups, _NAMES),
    43: Api("ElectLeaders", range(3), replicas.elect_leaders, _PARTITIONS),
    44: Api("IncrementalAlterConfigs", range(2), configs.incremental_alter_configs, _CONFIGS),
    46: Api("ListPartitionReassignments", range(1), replicas.list_partition_reassignments, _PARTITIONS),
    47: Api("OffsetDelete", range(1), group_offsets.offset_delete, _NAMES),
    55: Api("DescribeQuorum", range(3), replicas.describe_quorum, _FEW),
    60: Api("DescribeCluster", range(3), cluster.describe_cluster, _FEW),
    68: Api("ConsumerGroupHeartbeat", range(2), consumers.consumer_group_heartbeat, _PARTITIONS),
    69: Api("ConsumerGroupDescribe", range(2), consumers.consumer_group_describe, _NAMES),
    75: Api("DescribeTopicPartitions", range(1), cluster.describe_topic_partitions, _NAMES),
}

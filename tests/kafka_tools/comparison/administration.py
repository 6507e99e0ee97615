"""Probes of topics, configs, and what pages for administrators ask."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.kafka_tools.comparison.side import CREATE_TOPICS, METADATA, NO_CONFIGS, Configs, Side, named, probe

API_VERSIONS, SASL_HANDSHAKE, DELETE_TOPICS, CREATE_PARTITIONS = 18, 17, 20, 37
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL = 32, 33, 44
DESCRIBE_ACLS, LOG_DIRS, ELECT_LEADERS, REASSIGNMENTS, QUORUM, CLUSTER, TOPIC_PARTITIONS = 29, 35, 43, 46, 55, 60, 75
TOPIC, BROKER = 2, 4


# Versions and sign-in


@probe("ApiVersions: a version that is too new")
def _(side: Side) -> object:
    with side.client() as client:
        client.request(API_VERSIONS, 0)
        client.answer(0)
        client.send(bytes.fromhex("0000000e 0012 03e7 00000001 0003 726177 00"))
        number = client.expect(API_VERSIONS, 0)
        answer = client.answer(number)
        return named(answer.error_code), [each.api_key for each in answer.api_keys if each.api_key == API_VERSIONS]


@probe("SaslHandshake: where nobody signs in", differs="Without tokens a server lets clients sign in")
def _(side: Side) -> object:
    return named(side.call(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code)


# Topics


def create(
    side: Side, name: str, *, partitions: int = 1, copies: int = 1, only: bool = True, configs: Configs = NO_CONFIGS
) -> Any:
    """What CreateTopics says; nothing is made unless asked for."""
    told = [{"name": key, "value": value} for key, value in configs.items()]
    new = {"name": name, "num_partitions": partitions, "replication_factor": copies, "configs": told}
    return side.call(CREATE_TOPICS, 7, topics=[new], timeout=30_000, validate_only=only).topics[0]


@probe("CreateTopics: exists already, also with configs that no topic has")
def _(side: Side) -> object:
    topic = side.topic()
    return [named(create(side, topic, only=False, configs=each).error_code) for each in ({}, {"nonsense": "1"})]


@probe("CreateTopics: names", differs="more characters are allowed")
def _(side: Side) -> object:
    return [named(create(side, name).error_code) for name in ("a b", "a/b", "ä", "x" * 250, ".", "..")]


@probe("CreateTopics: names that no server takes")
def _(side: Side) -> object:
    return [named(create(side, name).error_code) for name in ("", "x" * 300)]


@probe("CreateTopics: a name in other letters", differs="Names of topics are case-insensitive")
def _(side: Side) -> object:
    return named(create(side, side.topic().upper()).error_code)


@probe("CreateTopics: numbers of partitions and copies")
def _(side: Side) -> object:
    numbers = ((0, 1), (-2, 1), (-1, -1), (1, 0), (1, 3), (1, -2))
    return [named(create(side, "new", partitions=some, copies=copies).error_code) for some, copies in numbers]


@probe("CreateTopics: an unknown config, a value that is none")
def _(side: Side) -> object:
    given = ({"nonsense": "1"}, {"retention.ms": "soon"}, {"retention.ms": "-5"}, {"max.message.bytes": "-1"})
    return [named(create(side, "new", configs=each).error_code) for each in given]


TUNING = {
    "segment.bytes": "1048576",
    "segment.ms": "60000",
    "delete.retention.ms": "1000",
    "flush.messages": "1",
    "flush.ms": "100",
    "min.insync.replicas": "1",
    "compression.type": "producer",
}


@probe("CreateTopics: configs that tune storage")
def _(side: Side) -> object:
    return [named(create(side, "new", configs={name: value}).error_code) for name, value in TUNING.items()]


@probe("CreateTopics: cleanup.policy=compact", differs="cleanup.policy=compact` is refused")
def _(side: Side) -> object:
    return named(create(side, "new", configs={"cleanup.policy": "compact"}).error_code)


@probe("CreateTopics: the answer")
def _(side: Side) -> object:
    made = create(side, f"made-{side.now_ms}", partitions=3, only=False, configs={"retention.ms": "60000"})
    told = {each.name: (each.value, each.config_source) for each in made.configs}
    return made.num_partitions, made.replication_factor, told["retention.ms"], str(made.topic_id) != str(uuid4())


@probe("CreateTopics: partitions that are assigned to servers", differs="Partitions cannot be assigned to servers")
def _(side: Side) -> object:
    (broker,) = side.call(METADATA, 9, topics=[]).brokers
    told = []
    for some, servers in ((-1, [broker.node_id]), (2, [broker.node_id]), (-1, [99])):
        given = [{"partition_index": 0, "broker_ids": servers}]
        new = {"name": "new", "num_partitions": some, "replication_factor": -1, "assignments": given, "configs": []}
        answer = side.call(CREATE_TOPICS, 7, topics=[new], timeout=1000, validate_only=True)
        told.append(named(answer.topics[0].error_code))
    return told


@probe("CreatePartitions: fewer, as many, more, of no topic")
def _(side: Side) -> object:
    topic, told = side.topic(partitions=3), []
    for name, some in ((topic, 2), (topic, 3), (topic, 5), ("absent", 5)):
        grown = [{"name": name, "count": some, "assignments": None}]
        (answer,) = side.call(CREATE_PARTITIONS, 3, topics=grown, timeout=10_000, validate_only=True).results
        told.append(named(answer.error_code))
    return told


@probe("DeleteTopics: a topic, no topic, an id that no topic has")
def _(side: Side) -> object:
    named_ones = [{"name": side.topic(), "topic_id": None}, {"name": "absent", "topic_id": None}]
    asked = [*named_ones, {"name": None, "topic_id": uuid4()}]
    answer = side.call(DELETE_TOPICS, 6, topics=asked, timeout=10_000)
    return sorted(named(each.error_code) for each in answer.responses)


@probe("Metadata: no such topic, a name that cannot be, an id that no topic has")
def _(side: Side) -> object:
    told = [side.call(METADATA, 9, topics=[{"name": name}]).topics[0] for name in ("absent", "")]
    told.append(side.call(METADATA, 12, topics=[{"topic_id": uuid4(), "name": None}]).topics[0])
    return [(named(each.error_code), len(each.partitions)) for each in told]


@probe("Metadata: a topic")
def _(side: Side) -> object:
    answer = side.call(METADATA, 9, topics=[{"name": side.topic(partitions=2)}])
    (broker,), (topic,) = answer.brokers, answer.topics
    told = [(each.leader_id == broker.node_id, each.leader_epoch, len(each.isr_nodes)) for each in topic.partitions]
    return told, topic.is_internal, answer.controller_id == broker.node_id, bool(answer.cluster_id), broker.rack


@probe("Metadata: all topics have ids and no errors")
def _(side: Side) -> object:
    topic = side.topic()
    found = [each for each in side.call(METADATA, 12, topics=None).topics if each.name == topic]
    return [(named(each.error_code), str(each.topic_id) == str(side.topic_id(topic))) for each in found]


@probe("DescribeTopicPartitions: a page, the next, no such topic")
def _(side: Side) -> object:
    topic, told = side.topic(partitions=3), []
    cursor: dict[str, Any] | None = None
    for _ in range(2):
        asked = {"topics": [{"name": topic}], "response_partition_limit": 2, "cursor": cursor}
        answer = side.call(TOPIC_PARTITIONS, 0, **asked)
        cursor = answer.next_cursor and vars(answer.next_cursor)
        told.append(
            ([each.partition_index for each in answer.topics[0].partitions], cursor and cursor["partition_index"])
        )
    absent = side.call(TOPIC_PARTITIONS, 0, topics=[{"name": "absent"}], response_partition_limit=2, cursor=None)
    return told, named(absent.topics[0].error_code)


# Configs


def configs(side: Side, name: str, *keys: str, kind: int = TOPIC) -> Any:
    """What DescribeConfigs says of a resource."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return side.call(DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=True).results[0]


@probe("DescribeConfigs: of a topic, what was set and what is usual", differs="`cleanup.policy` is read-only")
def _(side: Side) -> object:
    topic = side.topic(configs={"retention.ms": "60000", "segment.bytes": "1048576"})
    names = ("retention.ms", "segment.bytes", "cleanup.policy", "message.timestamp.type")
    answer = configs(side, topic, *names, "nonsense")
    found = {each.name: (each.value, each.config_source, each.read_only, each.config_type) for each in answer.configs}
    return named(answer.error_code), [found.get(name) for name in (*names, "nonsense")]


@probe(
    "DescribeConfigs: usual values of a topic that tune storage", differs="Configs that nobody set show what holds here"
)
def _(side: Side) -> object:
    names = ("segment.bytes", "segment.ms", "delete.retention.ms", "flush.messages", "flush.ms", "compression.type")
    found = {each.name: each.value for each in configs(side, side.topic(), *names).configs}
    return [found.get(name) for name in names]


@probe(
    "DescribeConfigs: usual values of a topic that have an effect",
    differs="Configs that nobody set show what holds here",
)
def _(side: Side) -> object:
    names = ("retention.ms", "retention.bytes", "max.message.bytes")
    found = {each.name: each.value for each in configs(side, side.topic(), *names).configs}
    return [found.get(name) for name in names]


@probe("DescribeConfigs: of no topic, of no kind, of a server that is none")
def _(side: Side) -> object:
    given = (configs(side, "absent"), configs(side, "99", kind=BROKER), configs(side, "x", kind=BROKER))
    return [named(each.error_code) for each in (*given, configs(side, "x", kind=77))]


@probe("DescribeConfigs: of a server")
def _(side: Side) -> object:
    (broker,) = side.call(METADATA, 9, topics=[]).brokers
    answer = configs(side, str(broker.node_id), kind=BROKER)
    names = {each.name for each in answer.configs}
    return named(answer.error_code), [
        each in names for each in ("log.retention.ms", "message.max.bytes", "num.partitions")
    ]


def alter(side: Side, topic: str, name: str, value: str | None, operation: int = 0) -> str:
    """What IncrementalAlterConfigs says."""
    told = [{"name": name, "value": value, "config_operation": operation}]
    asked = {"resource_type": TOPIC, "resource_name": topic, "configs": told}
    return named(side.call(INCREMENTAL, 1, resources=[asked], validate_only=False).responses[0].error_code)


@probe("IncrementalAlterConfigs: set, delete, append, something else", differs="set or deleted, not appended")
def _(side: Side) -> object:
    topic, told = side.topic(), []
    for name, value, operation in (
        ("retention.ms", "60000", 0),
        ("retention.ms", None, 1),
        ("retention.ms", "1", 2),
        ("cleanup.policy", "delete", 2),
        ("retention.ms", "1", 9),
        ("retention.ms", "soon", 0),
        ("nonsense", "1", 0),
    ):
        told.append(alter(side, topic, name, value, operation))
    return told


@probe("IncrementalAlterConfigs: of no topic")
def _(side: Side) -> object:
    return alter(side, "absent", "retention.ms", "60000")


@probe("AlterConfigs: replaces all")
def _(side: Side) -> object:
    topic = side.topic(configs={"retention.ms": "60000", "segment.bytes": "1048576"})
    asked = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "70000"}]}
    code = named(side.call(ALTER_CONFIGS, 1, resources=[asked], validate_only=False).responses[0].error_code)
    side.wait(lambda: configs(side, topic, "retention.ms").configs[0].value == "70000")
    sources = {each.name: each.config_source for each in configs(side, topic, "segment.bytes").configs}
    return code, sources["segment.bytes"] == 1


# What administrators look at


@probe("DescribeLogDirs: of a topic, of no topic")
def _(side: Side) -> object:
    topic = side.topic(partitions=2)
    side.fill(topic, 3)
    told = []
    for name in (topic, "absent"):
        (answer,) = side.call(LOG_DIRS, 4, topics=[{"topic": name, "partitions": [0, 1]}]).results
        parts = sorted((each.partition_size > 0, each.offset_lag) for one in answer.topics for each in one.partitions)
        told.append((named(answer.error_code), parts, answer.total_bytes > 0, answer.usable_bytes > 0))
    return told


@probe("ElectLeaders: of a partition, of no topic")
def _(side: Side) -> object:
    told = []
    for name in (side.topic(), "absent"):
        asked = [{"topic": name, "partitions": [0]}]
        answer = side.call(ELECT_LEADERS, 2, election_type=0, topic_partitions=asked, timeout=5000)
        results = [each for one in answer.replica_election_results for each in one.partition_result]
        told.append((named(answer.error_code), [named(each.error_code) for each in results]))
    return told


@probe("ListPartitionReassignments: all, of a topic, of no topic")
def _(side: Side) -> object:
    asked = (None, *([{"name": name, "partition_indexes": [0]}] for name in (side.topic(), "absent")))
    answers = [side.call(REASSIGNMENTS, 0, topics=each, timeout=5000) for each in asked]
    return [(named(each.error_code), len(each.topics)) for each in answers]


@probe("DescribeQuorum: of the metadata, of another topic")
def _(side: Side) -> object:
    told = []
    for name in ("__cluster_metadata", side.topic()):
        answer = side.call(QUORUM, 0, topics=[{"topic_name": name, "partitions": [{"partition_index": 0}]}])
        parts = [each for topic in answer.topics for each in topic.partitions]
        told.append((named(answer.error_code), [(named(each.error_code), len(each.current_voters)) for each in parts]))
    return told


@probe("DescribeCluster: servers, the controller, operations", differs="name the operations that exist here")
def _(side: Side) -> object:
    answer = side.call(CLUSTER, 0, include_cluster_authorized_operations=True)
    (broker,) = answer.brokers
    known = answer.controller_id == broker.broker_id, bool(answer.cluster_id)
    return named(answer.error_code), known, bin(answer.cluster_authorized_operations & 0xFFFFFFFF)


@probe("DescribeCluster: controllers as endpoints")
def _(side: Side) -> object:
    return [named(side.call(CLUSTER, 1, endpoint_type=kind).error_code) for kind in (1, 2, 3)]


@probe("DescribeAcls: where nobody signs in")
def _(side: Side) -> object:
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    return named(side.call(DESCRIBE_ACLS, 2, **asked).error_code)

"""Apache Kafka's tools that ask about servers, replicas and rights."""

from __future__ import annotations

import json

import pytest

from tests.kafka_tools.test_tools import CONFIGS, COUNT, created, filled
from tests.kafka_tools.tools import Tools

pytestmark = pytest.mark.kafka_tools

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def test_log_dirs(tools: Tools) -> None:
    filled(tools, "tool-sizes")
    printed = tools.run(LOG_DIRS, "--describe", "--topic-list", "tool-sizes").splitlines()
    (described,) = [json.loads(line) for line in printed if line.startswith("{")]
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes.keys() == {f"tool-sizes-{number}" for number in range(3)}
    assert sum(sizes.values()) > COUNT


def test_configs_of_a_server(tools: Tools) -> None:
    described = tools.run(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0")
    assert "delete.topic.enable=true" in described and "num.partitions=1" in described
    tools.run(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-default")


def test_configs_that_tune_storage(tools: Tools) -> None:
    named = ["--entity-type", "topics", "--entity-name", created(tools, "tool-tuned")]
    tools.run(CONFIGS, "--alter", *named, "--add-config", "segment.bytes=52428800,min.insync.replicas=2")
    described = tools.run(CONFIGS, "--describe", *named)
    assert "segment.bytes=52428800" in described and "min.insync.replicas=2" in described
    with pytest.raises(AssertionError, match="topics are not compacted here"):
        tools.run(CONFIGS, "--alter", *named, "--add-config", "cleanup.policy=compact")


def test_the_quorum(tools: Tools) -> None:
    assert "LeaderId:" in tools.run(QUORUM, "describe", "--status")
    assert "Leader" in tools.run(QUORUM, "describe", "--replication")


def test_elections_and_reassignments(tools: Tools) -> None:
    topic = created(tools, "tool-elected")
    options = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    assert "Valid replica already elected" in tools.run(ELECTION, *options)
    tools.run(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert "No partition reassignments found" in tools.run(REASSIGNMENT, "--list")

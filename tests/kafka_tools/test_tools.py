"""Apache Kafka's command-line tools, one test each: what they print is what a person would look at."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kafka_tools.tools import Tools

pytestmark = pytest.mark.kafka_tools

COUNT = 1000
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def created(tools: Tools, topic: str, partitions: int = 3) -> str:
    """A topic of this name, made by kafka-topics."""
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", str(partitions))
    return topic


def filled(tools: Tools, topic: str, count: int = COUNT) -> str:
    """A topic with numbered lines in it, by kafka-console-producer."""
    lines = "".join(f"key-{number % 7}\tline {number}\n" for number in range(count))
    options = ["--property", "parse.key=true"]
    tools.run(CONSOLE_PRODUCER, "--topic", created(tools, topic), *options, given=lines)
    return topic


def events(output: str) -> list[dict[str, object]]:
    """The lines of JSON that the verifiable programs print."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_topics(tools: Tools) -> None:
    created(tools, "tool-topics", 4)
    assert "tool-topics" in tools.run(TOPICS, "--list").split()
    tools.run(TOPICS, "--alter", "--topic", "tool-topics", "--partitions", "6")
    described = tools.run(TOPICS, "--describe", "--topic", "tool-topics")
    assert "PartitionCount: 6" in described
    assert "ReplicationFactor: 1" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: 0", described)) == 6
    tools.run(TOPICS, "--delete", "--topic", "tool-topics")
    assert "tool-topics" not in tools.run(TOPICS, "--list").split()


def test_console_producer_and_consumer(tools: Tools) -> None:
    filled(tools, "tool-console")
    options = ["--from-beginning", "--max-messages", str(COUNT), "--property", "print.key=true"]
    printed = tools.run(CONSOLE_CONSUMER, "--topic", "tool-console", *options)
    assert sorted(printed.splitlines()) == sorted(f"key-{number % 7}\tline {number}" for number in range(COUNT))


def test_console_producer_with_headers_and_compression(tools: Tools) -> None:
    topic = created(tools, "tool-headers", 1)
    options = ["--property", "parse.headers=true", "--property", "parse.key=true", "--compression-codec"]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        tools.run(CONSOLE_PRODUCER, "--topic", topic, *options, codec, given=f"kind:sale\tkey\t{codec}\n")
    shown = ["print.headers=true", "print.key=true", "print.offset=true", "print.partition=true"]
    properties = [part for each in shown for part in ("--property", each)]
    printed = tools.run(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "4", *properties)
    assert printed.splitlines() == [
        f"Partition:0\tOffset:{offset}\tkind:sale\tkey\t{codec}"
        for offset, codec in enumerate(("gzip", "snappy", "lz4", "zstd"))
    ]


def test_verifiable_producer_and_consumer(tools: Tools) -> None:
    topic = created(tools, "tool-verifiable")
    count = ["--max-messages", str(COUNT)]
    sent = events(tools.run("org.apache.kafka.tools.VerifiableProducer", "--topic", topic, *count))
    assert sent[-1]["name"] == "tool_data"
    assert (sent[-1]["sent"], sent[-1]["acked"]) == (COUNT, COUNT)
    options = ["--group-id", "tool-verifiable", "--topic", topic, *count]
    got = events(tools.run("org.apache.kafka.tools.VerifiableConsumer", *options))
    consumed = [event for event in got if event["name"] == "records_consumed"]
    assert sum(int(str(event["count"])) for event in consumed) == COUNT
    assert any(event["name"] == "offsets_committed" and event["success"] for event in got)
    assert "partitions_assigned" in {event["name"] for event in got}


def test_configs(tools: Tools) -> None:
    topic = created(tools, "tool-configs")
    named = ["--entity-type", "topics", "--entity-name", topic]
    tools.run(CONFIGS, "--alter", *named, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    described = tools.run(CONFIGS, "--describe", *named)
    assert "retention.ms=7200000" in described
    assert "max.message.bytes=2000000" in described
    assert "cleanup.policy=delete" in tools.run(CONFIGS, "--describe", "--all", *named)
    tools.run(CONFIGS, "--alter", *named, "--delete-config", "max.message.bytes")
    assert "max.message.bytes=2000000" not in tools.run(CONFIGS, "--describe", *named)
    with pytest.raises(AssertionError, match=r"no\.such\.setting"):
        tools.run(CONFIGS, "--alter", *named, "--add-config", "no.such.setting=1")


def test_consumer_groups(tools: Tools) -> None:
    topic = filled(tools, "tool-groups")
    group = ["--group", "tool-groups"]
    tools.run(CONSOLE_CONSUMER, "--topic", topic, *group, "--from-beginning", "--max-messages", str(COUNT))
    assert "tool-groups" in tools.run(GROUPS, "--list").split()
    assert lag(tools.run(GROUPS, "--describe", *group)) == 0
    assert "Empty" in tools.run(GROUPS, "--describe", "--state", *group)
    tools.run(GROUPS, "--describe", "--members", *group)
    tools.run(GROUPS, "--reset-offsets", "--to-earliest", "--execute", "--topic", topic, *group)
    assert lag(tools.run(GROUPS, "--describe", *group)) == COUNT
    tools.run(GROUPS, "--delete", *group)
    assert "tool-groups" not in tools.run(GROUPS, "--list").split()


def lag(described: str) -> int:
    """The lag of all partitions together, as kafka-consumer-groups prints it."""
    rows = [line.split() for line in described.splitlines() if line.strip()]
    place = rows[0].index("LAG")
    return sum(int(row[place]) for row in rows[1:])


def test_get_offsets(tools: Tools) -> None:
    topic = filled(tools, "tool-offsets")

    def total(*time: str) -> int:
        printed = tools.run(OFFSETS, "--topic", topic, *time)
        return sum(int(line.rsplit(":", 1)[1]) for line in printed.splitlines())

    assert total() == COUNT
    assert total("--time", "earliest") == 0
    assert total("--time", "latest") == COUNT
    assert total("--time", "0") == 0
    assert re.search(rf"{topic}:\d:\d+", tools.run(OFFSETS, "--topic", topic, "--time", "max-timestamp"))


def test_delete_records(tools: Tools, tmp_path: Path) -> None:
    topic = filled(tools, "tool-deletion")
    deletion = tmp_path / "deletion.json"
    places = [{"topic": topic, "partition": 0, "offset": 1}, {"topic": topic, "partition": 1, "offset": -1}]
    deletion.write_text(json.dumps({"version": 1, "partitions": places}))
    printed = tools.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(deletion))
    assert f"partition: {topic}-0\tlow_watermark: 1" in printed
    earliest = tools.run(OFFSETS, "--topic", topic, "--time", "earliest")
    assert f"{topic}:0:1" in earliest
    latest = tools.run(OFFSETS, "--topic", topic, "--time", "latest", "--partitions", "1")
    assert latest.strip() in earliest


def test_api_versions(tools: Tools) -> None:
    printed = tools.run("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): .*\[usable: \d+\]", printed)
    assert re.search(r"Fetch\(1\): .*\[usable: \d+\]", printed)


def test_producer_and_consumer_performance(tools: Tools) -> None:
    topic = created(tools, "tool-performance", 8)
    count = 100_000
    options = ["--num-records", str(count), "--record-size", "100", "--throughput", "-1"]
    producer = ["--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all"]
    program = "org.apache.kafka.tools.ProducerPerformance"
    printed = tools.run(program, "--topic", topic, *options, *producer, connects_by="")
    assert f"{count} records sent" in printed
    program = "org.apache.kafka.tools.ConsumerPerformance"
    printed = tools.run(program, "--topic", topic, "--messages", str(count), "--timeout", "60000")
    fields = [field.strip() for field in printed.splitlines()[-1].split(",")]
    assert int(fields[4]) >= count


def test_end_to_end_latency(tools: Tools) -> None:
    topic = created(tools, "tool-latency", 1)
    options = [tools.bootstrap, topic, "200", "all", "100"]
    printed = tools.run("org.apache.kafka.tools.EndToEndLatency", *options, connects_by="")
    assert "Percentiles: 50th" in printed

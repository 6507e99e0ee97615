"""What the broker is asked before Spark is."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import Forbidden, InvalidInput, TopicNotFound, Unreachable
from headrace.core.publish.state import CommitKey
from headrace.protocols.flight.server import FlightServer
from headrace.spark.pipeline.definition.description import Description
from headrace.spark.pipeline.definition.load import describe
from headrace.spark.pipeline.run.preflight import check_sink_id, check_topics, make_topics
from headrace.spark.pipeline.sinks.file_commit import FileCommit


def described(url: str, topic: str, **parts: Any) -> Description:
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic},
        "sink": {"topic": f"{topic}-out"},
        "run": {"checkpoint": "cp"},
    }
    return describe(tables | parts, {})


def test_topics_that_are_missing(url: str, client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFound) as missing:
        check_topics(described(url, topic))
    assert missing.value.topic == topic
    client.create_topic(topic)
    with pytest.raises(TopicNotFound) as missing:
        check_topics(described(url, topic))
    assert missing.value.topic == f"{topic}-out"
    client.create_topic(f"{topic}-OUT")
    check_topics(described(url, topic))


def test_topics_are_made_if_asked_for(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    parts = {
        "source": {"topic": topic, "schema": "a INT"},
        "sink": {"topic": f"{topic}-out", "partitions": 3, "settings": {"retention_seconds": "60"}},
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1, "settings": {"codecs": ["raw"]}},
    }
    check_topics(described(url, topic, **parts))
    check_sink_id(described(url, topic, **parts), "mine")
    assert client.list_topics().count(f"{topic}-out") == 0, "a look makes nothing"
    make_topics(described(url, topic, **parts))
    assert len(client.offsets(f"{topic}-out")) == 3 and len(client.offsets(f"{topic}-dead")) == 1
    assert client.describe_topic(f"{topic}-out").settings.retention_seconds == 60
    assert client.describe_topic(f"{topic}-dead").settings.codecs == ("raw",)
    make_topics(described(url, topic, sink={"topic": f"{topic}-out", "partitions": 1}))
    assert len(client.offsets(f"{topic}-out")) == 3, "one that is there stays as it is"


def test_a_token_needs_no_more_than_to_read_the_source_and_to_publish() -> None:
    with Broker.open("memory:") as broker:
        for name in ("in", "in-out", "in-dead"):
            broker.create_topic(name)
        _, token = broker.access.create("pipeline", [("in", ["read"]), ("in-*", ["publish"])])
        served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        server = {"url": f"headrace://127.0.0.1:{served.port}", "token": token}
        sink = {"topic": "in-out", "partitions": 1}
        parts = {"source": {"topic": "in", "schema": "a INT"}, "dead_letters": {"topic": "in-dead"}, "sink": sink}
        check_topics(described("", "in", server=server, **parts))
        check_sink_id(described("", "in", server=server), "mine")
        with pytest.raises(TopicNotFound):
            check_topics(described("", "in", server=server, sink={"topic": "in-missing"}))
        make_topics(described("", "in", server=server, **parts))
        missing = described("", "in", server=server, sink={"topic": "in-missing", "partitions": 1})
        check_topics(missing)
        with pytest.raises(Forbidden):
            make_topics(missing)
        with pytest.raises(Forbidden):
            check_topics(described("", "in-out", server=server, sink={"topic": "in-dead"}))
        with pytest.raises(Forbidden):
            check_topics(described("", "in", server=server, sink={"topic": "elsewhere"}))
        assert served.stop(10.0)


def test_a_token_for_one_sink_only() -> None:
    with Broker.open("memory:") as broker:
        for name in ("in", "in-out", "in-more"):
            broker.create_topic(name)
        _, token = broker.access.create("etl", [("in", ["read"]), ("in-*", ["publish"])], producers=["etl-*"])
        served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        server = {"url": f"headrace://127.0.0.1:{served.port}", "token": token}
        for sink_id, is_allowed in (("etl-orders", True), ("other", False)):
            sink = {"topic": "in-out", "sink_id": sink_id, "partitions": 1}
            made = described("", "in", server=server, sink=sink, sinks={"more": {"topic": "in-more"}})
            for look in (check_topics, make_topics):
                with nullcontext() if is_allowed else pytest.raises(Forbidden):
                    look(made)
        assert served.stop(10.0)


def test_a_stream_continues_without_a_topic_that_was_deleted(url: str, client: Client, topic: str) -> None:
    for name in (topic, f"{topic}-out"):
        client.create_topic(name)
    source = {"topic": f"{topic},{topic}-deleted"}
    lenient = described(url, topic, source={**source, "fail_on_data_loss": False})
    check_topics(lenient, is_new=False)
    with pytest.raises(TopicNotFound):
        check_topics(lenient)
    with pytest.raises(TopicNotFound):
        check_topics(described(url, topic, source=source), is_new=False)


def test_an_id_that_has_published_from_another_checkpoint(url: str, client: Client, topic: str) -> None:
    client.create_topic(f"{topic}-out")
    check_sink_id(described(url, topic), "mine")
    client.publish_staged(f"{topic}-out", [], CommitKey("mine", 4))
    assert client.last_commit(f"{topic}-out", "mine") == 4
    with pytest.raises(InvalidInput) as refused:
        check_sink_id(described(url, topic), "mine")
    assert refused.value.field == "sink.sink_id" and "batch 4" in refused.value.rule


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize("end", ["sink", "dead_letters"])
def test_an_id_that_has_written_to_a_table_from_another_checkpoint(
    url: str, topic: str, tmp_path: Path, kind: str, end: str
) -> None:
    paths = {each: str(tmp_path / each) for each in ("sink", "dead_letters")}
    parts = {each: {"format": kind, "path": path} for each, path in paths.items()}
    asked = described(url, topic, source={"topic": topic, "schema": "a INT"}, **parts)
    check_sink_id(asked, "mine")
    assert not any(tmp_path.iterdir()), "a look makes nothing"
    landing = FileCommit(tmp_path / end, "mine")
    landing.open(lambda manifest: None, lambda manifest: True)
    check_sink_id(asked, "mine")
    stage = landing.new_stage()
    stage.mkdir()
    landing.land(stage, 4, lambda manifest: None)
    with pytest.raises(InvalidInput) as refused:
        check_sink_id(asked, "mine")
    assert refused.value.field == "sink.sink_id"
    assert "batch 4" in refused.value.rule and paths[end] in refused.value.rule
    check_sink_id(asked, "another")


def test_a_batch_that_is_decided_and_the_log_of_delta_count_too(url: str, topic: str, tmp_path: Path) -> None:
    state = tmp_path / "table" / "_headrace" / "mine"
    state.mkdir(parents=True)
    (state / "manifest").touch()
    with pytest.raises(InvalidInput, match="up to batch 0"):
        check_sink_id(described(url, topic, sink={"format": "parquet", "path": str(tmp_path / "table")}), "mine")

    properties = CommitProperties(app_transactions=[Transaction("mine", 7)])
    write_deltalake(tmp_path / "delta", pa.table({"a": [1]}), commit_properties=properties)
    sink = {"format": "delta", "path": str(tmp_path / "delta")}
    with pytest.raises(InvalidInput, match="up to batch 7"):
        check_sink_id(described(url, topic, sink=sink), "mine")
    check_sink_id(described(url, topic, sink=sink), "another")


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.pipeline.run.preflight._TIMEOUT_SECONDS", 0.2)
    with pytest.raises(Unreachable):
        check_topics(described("headrace://127.0.0.1:1", "x"))

"""YDB's SDK against a real server: topics, messages and commits, as its author would try them first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import ydb
from ydb import issues

from tests.protocols.ydb.site import YdbSite, commit, read, write


def test_what_is_written_is_read_and_committed(driver: Any, topic: str) -> None:
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=5)
    outcomes = write(driver, topic, ["a", "b", "c"], producer_id="till-1")
    assert [outcome.offset for outcome in outcomes] == [0, 1, 2]
    found = read(driver, topic, "billing", 3, commit)
    assert [(each.data, each.offset, each.seqno) for each in found] == [(b"a", 0, 1), (b"b", 1, 2), (b"c", 2, 3)]
    assert {(each.producer_id, each.message_group_id, each.partition_id) for each in found} == {("till-1", "till-1", 0)}
    assert all(before < each.written_at for each in found)
    described = driver.topic_client.describe_consumer(topic, "billing", include_stats=True)
    assert described.partitions[0].partition_consumer_stats.committed_offset == 3
    write(driver, topic, ["d"], producer_id="till-1")
    assert [(each.data, each.seqno) for each in read(driver, topic, "billing", 1)] == [(b"d", 4)]


def test_metadata_items_come_back_with_their_message(driver: Any, topic: str) -> None:
    items = {"place": b"\xff\x00", "till": b""}
    with driver.topic_client.writer(topic) as writer:
        writer.write(ydb.TopicWriterMessage("a", metadata_items=items))
        writer.write("b")
        writer.flush()
    assert [each.metadata_items for each in read(driver, topic, "billing", 2)] == [items, {}]


@pytest.mark.parametrize("codec", [ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP, 10_005])
def test_codecs_are_those_of_the_client(driver: Any, topic: str, codec: int) -> None:
    codecs = {10_005: lambda data: b"<" + data + b">"}
    with driver.topic_client.writer(topic, codec=codec, encoders=codecs) as writer:
        writer.write_with_ack("a" * 100)
    decoders = {10_005: lambda data: data[1:-1]}
    with driver.topic_client.reader(topic, consumer="billing", decoders=decoders) as reader:
        assert reader.receive_message(timeout=10).data == b"a" * 100


def test_a_codec_that_the_topic_does_not_list_is_refused(driver: Any, site: YdbSite) -> None:
    driver.topic_client.create_topic("/local/gzipped", supported_codecs=[ydb.TopicCodec.GZIP, 10_001])
    assert driver.topic_client.describe_topic("/local/gzipped").supported_codecs == [2, 10_001]
    with pytest.raises(issues.Error), driver.topic_client.writer("/local/gzipped", codec=ydb.TopicCodec.RAW) as writer:
        writer.write_with_ack("a", timeout=10)


def test_topics_are_described_as_they_were_created(driver: Any) -> None:
    client = driver.topic_client
    read_from = datetime(2026, 1, 2, 3, 4, 5)
    client.create_topic(
        "/local/dir/described",
        min_active_partitions=3,
        max_active_partitions=5,
        retention_period=timedelta(hours=7),
        retention_storage_mb=11,
        partition_write_speed_bytes_per_second=13,
        partition_write_burst_bytes=17,
        attributes={"team": "tills"},
        consumers=[ydb.TopicConsumer("plain"), ydb.TopicConsumer("held", important=True, read_from=read_from)],
        metering_mode=ydb.TopicMeteringMode.REQUEST_UNITS,
    )
    found = client.describe_topic("dir/described", include_stats=True)
    assert (found.min_active_partitions, found.max_active_partitions, len(found.partitions)) == (3, 5, 3)
    assert (found.retention_period, found.retention_storage_mb) == (timedelta(hours=7), 11)
    assert (found.partition_write_speed_bytes_per_second, found.partition_write_burst_bytes) == (13, 17)
    assert (found.attributes, found.metering_mode) == ({"team": "tills"}, ydb.TopicMeteringMode.REQUEST_UNITS)
    consumers = {each.name: each for each in found.consumers}
    assert (consumers["held"].important, consumers["plain"].important) == (True, False)
    assert consumers["held"].read_from == read_from
    client.alter_topic(
        "/local/dir/described",
        set_min_active_partitions=4,
        set_retention_period=timedelta(hours=8),
        alter_attributes={"team": "", "place": "hall"},
        add_consumers=["third"],
        drop_consumers=["plain"],
        alter_consumers=[ydb.TopicAlterConsumer("held", set_important=False)],
    )
    found = client.describe_topic("/local/dir/described")
    assert (len(found.partitions), found.retention_period) == (4, timedelta(hours=8))
    assert found.attributes == {"place": "hall"}
    assert {each.name: each.important for each in found.consumers} == {"held": False, "third": False}
    with pytest.raises(issues.BadRequest):
        client.alter_topic("/local/dir/described", set_min_active_partitions=1)


def test_what_does_not_exist_is_a_scheme_error(driver: Any, topic: str) -> None:
    client = driver.topic_client
    for call in (
        lambda: client.describe_topic("/local/nothing"),
        lambda: client.drop_topic("/local/nothing"),
        lambda: client.alter_topic("/local/nothing", set_min_active_partitions=2),
        lambda: client.describe_consumer(topic, "nobody"),
        lambda: client.create_topic("/local"),
        lambda: client.describe_topic("/other/topic"),
        lambda: client.commit_offset(topic, "nobody", 0, 0),
        lambda: client.commit_offset(topic, "billing", 9, 0),
        lambda: read(driver, topic, "nobody", 1),
        lambda: write(driver, "/local/nothing", ["a"]),
    ):
        with pytest.raises(issues.SchemeError):
            call()


def test_directories_are_derived_from_topics(driver: Any) -> None:
    scheme = driver.scheme_client
    scheme.make_directory("/local/shop")
    driver.topic_client.create_topic("/local/shop/tills/north")
    driver.topic_client.create_topic("/local/shop/orders")
    found = scheme.list_directory("/local/shop").children
    assert {each.name: each.type.name for each in found} == {"tills": "DIRECTORY", "orders": "TOPIC"}
    assert scheme.describe_path("/local/shop/orders").type == ydb.SchemeEntryType.TOPIC
    assert scheme.describe_path("/local/shop/tills").type == ydb.SchemeEntryType.DIRECTORY
    with pytest.raises(issues.PreconditionFailed):
        scheme.remove_directory("/local/shop")
    with pytest.raises(issues.SchemeError):
        scheme.describe_path("/local/shop/nothing")


def test_a_topic_that_is_dropped_ends_its_readers(driver: Any, topic: str) -> None:
    with driver.topic_client.reader(topic, consumer="billing") as reader:
        write(driver, topic, ["a"])
        reader.receive_message(timeout=10)
        driver.topic_client.drop_topic(topic)
        with pytest.raises(issues.SchemeError):
            reader.receive_message(timeout=10)


def test_transactions_are_unsupported(driver: Any) -> None:
    from ydb._grpc.common import ydb_topic_v1_pb2_grpc
    from ydb._grpc.common.protos import ydb_topic_pb2

    with pytest.raises(issues.Unsupported):
        driver(
            ydb_topic_pb2.UpdateOffsetsInTransactionRequest(),
            ydb_topic_v1_pb2_grpc.TopicServiceStub,
            "UpdateOffsetsInTransaction",
            _checked,
        )


def _checked(_: Any, response: Any) -> None:
    issues._process_response(response.operation)

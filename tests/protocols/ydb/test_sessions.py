"""Write and read sessions, message by message: what YDB's SDKs rely on, and what they never send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ydb._grpc.common import ydb_discovery_v1_pb2_grpc as discovery_grpc
from ydb._grpc.common.protos import ydb_discovery_pb2 as discovery

from tests.protocols.ydb.raw import (
    MessageData,
    RawYdb,
    Read,
    Status,
    Write,
    commit_ranges,
    messages,
    put,
    start,
    topic,
)
from tests.protocols.ydb.site import YdbSite


@pytest.fixture
def raw(site: YdbSite) -> Iterator[RawYdb]:
    with RawYdb(site.endpoint) as raw:
        yield raw


@pytest.fixture
def path(raw: RawYdb, request: pytest.FixtureRequest) -> str:
    """A topic with one partition and the consumer `c`."""
    return created(raw, f"/local/{request.node.name}")


def created(raw: RawYdb, path: str, partitions: int = 1, consumers: tuple[str, ...] = ("c",)) -> str:
    settings = topic.PartitioningSettings(min_active_partitions=partitions)
    named = [topic.Consumer(name=name) for name in consumers]
    request = topic.CreateTopicRequest(path=path, partitioning_settings=settings, consumers=named)
    assert raw.call("CreateTopic", request).status == Status.SUCCESS
    return path


def outcomes(response: Any) -> list[tuple[int, str]]:
    return [(ack.seq_no, ack.WhichOneof("message_write_status")) for ack in response.acks]


# Writing


def test_numbers_at_or_below_the_last_are_skipped(raw: RawYdb, path: str) -> None:
    first, opened = raw.writer(path, producer_id="p", message_group_id="p")
    assert (opened.last_seq_no, opened.partition_id, opened.supported_codecs.codecs) == (0, 0, [])
    response = put(first, [7, 7, 6, 9])
    assert outcomes(response) == [(7, "written"), (7, "skipped"), (6, "skipped"), (9, "written")]
    assert response.HasField("write_statistics")
    # Another content with the same number is no reason to write it.
    assert outcomes(put(first, [9], b"other")) == [(9, "skipped")]
    _, again = raw.writer(path, producer_id="p", message_group_id="p")
    assert again.last_seq_no == 9


def test_a_second_writer_of_a_producer_takes_over(raw: RawYdb, path: str) -> None:
    first, _ = raw.writer(path, producer_id="p", message_group_id="p")
    put(first, [1])
    second, opened = raw.writer(path, producer_id="p", message_group_id="p")
    assert opened.last_seq_no == 1
    first.send(write_request=Write.WriteRequest(messages=[MessageData(seq_no=2, data=b"x")], codec=1))
    assert first.ended()[0] == Status.BAD_REQUEST
    assert outcomes(put(second, [2])) == [(2, "written")]


def test_a_partition_that_is_written_too_fast_is_acknowledged_later(raw: RawYdb, path: str) -> None:
    limited = f"{path}-limited"
    request = topic.CreateTopicRequest(path=limited, partition_write_speed_bytes_per_second=20_000)
    request.partitioning_settings.min_active_partitions = 2
    request.partition_write_burst_bytes = 1_000
    assert raw.call("CreateTopic", request).status == Status.SUCCESS
    began = time.monotonic()
    slow, _ = raw.writer(limited, partition_id=0)
    free, _ = raw.writer(limited, partition_id=1)
    slow.send(write_request=Write.WriteRequest(messages=[MessageData(seq_no=1, data=b"x" * 5_000)], codec=1))
    assert outcomes(put(free, [1])) == [(1, "written")]
    assert outcomes(slow.expect("write_response")) == [(1, "written")]
    assert time.monotonic() - began >= 4_000 / 20_000
    change = topic.AlterTopicRequest(path=limited, set_partition_write_speed_bytes_per_second=0)
    assert raw.call("AlterTopic", change).status == Status.SUCCESS
    assert outcomes(put(slow, [2], b"x" * 100_000)) == [(2, "written")]


def test_a_message_that_ydb_would_not_receive_is_refused_by_grpc(raw: RawYdb, path: str) -> None:
    stream, _ = raw.writer(path)
    stream.send(write_request=Write.WriteRequest(messages=[MessageData(seq_no=1, data=bytes(63 << 20))], codec=1))
    with pytest.raises(grpc.RpcError) as caught:
        stream.receive()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in caught.value.details()


def test_partitions_are_at_servers_that_clients_are_told_of(raw: RawYdb, path: str) -> None:
    wide = created(raw, f"{path}-located", partitions=3)
    described = raw.call("DescribeTopic", topic.DescribeTopicRequest(path=wide, include_location=True))
    found = topic.DescribeTopicResult.FromString(described.result.value)
    listed = discovery_grpc.DiscoveryServiceStub(raw.channel).ListEndpoints(
        discovery.ListEndpointsRequest(database="/local"), metadata=raw.metadata, timeout=30
    )
    nodes = {each.node_id for each in discovery.ListEndpointsResult.FromString(listed.operation.result.value).endpoints}
    assert {each.partition_location.node_id for each in found.partitions} == nodes


def test_a_session_without_a_producer_deduplicates_nothing(raw: RawYdb, path: str) -> None:
    stream, opened = raw.writer(path)
    assert opened.last_seq_no == 0
    assert outcomes(put(stream, [1, 1])) == [(1, "written"), (1, "written")]


def test_sources_keep_their_partition_and_new_ones_take_turns(raw: RawYdb, path: str) -> None:
    wide = created(raw, f"{path}-wide", partitions=3)
    places = {}
    for name in ("a", "b", "c"):
        stream, opened = raw.writer(wide, producer_id=name, message_group_id=name)
        assert put(stream, [1]).partition_id == opened.partition_id
        places[name] = opened.partition_id
    assert sorted(places.values()) == [0, 1, 2]
    for name, place in places.items():
        assert raw.writer(wide, producer_id=name, message_group_id=name)[1].partition_id == place


def test_a_partition_may_be_chosen_and_counts_for_itself(raw: RawYdb, path: str) -> None:
    wide = created(raw, f"{path}-wide", partitions=2)
    for partition in (0, 1):
        stream, opened = raw.writer(wide, producer_id="p", partition_id=partition)
        assert (opened.partition_id, opened.last_seq_no) == (partition, 0)
        assert outcomes(put(stream, [1])) == [(1, "written")]
    placed = topic.PartitionWithGeneration(partition_id=1, generation=1)
    assert raw.writer(wide, producer_id="p", partition_with_generation=placed)[1].last_seq_no == 1


@pytest.mark.parametrize(
    ("init", "status"),
    [
        ({"partition_id": 1}, Status.SCHEME_ERROR),
        ({"partition_id": -1}, Status.SCHEME_ERROR),
        ({"partition_with_generation": topic.PartitionWithGeneration(generation=7)}, Status.BAD_REQUEST),
        ({"producer_id": "p" * 3000, "message_group_id": "p"}, Status.BAD_REQUEST),
    ],
)
def test_sessions_that_cannot_be_opened_say_why(raw: RawYdb, path: str, init: dict[str, Any], status: int) -> None:
    stream = raw.stream("StreamWrite", Write)
    stream.send(init_request=Write.InitRequest(path=path, **init))
    stream.send(write_request=Write.WriteRequest(messages=[MessageData(seq_no=1, data=b"x")], codec=1))
    assert stream.ended()[0] == status


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (Write.WriteRequest(messages=[MessageData(seq_no=1)], codec=77), Status.BAD_REQUEST),
        (Write.WriteRequest(messages=[MessageData(seq_no=-1)], codec=1), Status.BAD_REQUEST),
        (Write.WriteRequest(messages=[MessageData(seq_no=1, partition_id=0)], codec=1), Status.BAD_REQUEST),
        (Write.WriteRequest(codec=1, tx=topic.TransactionIdentity(id="t")), Status.UNSUPPORTED),
        (Write.WriteRequest(messages=[MessageData(seq_no=1, data=bytes(13 << 20))], codec=1), Status.BAD_REQUEST),
        (Write.WriteRequest(messages=[MessageData(created_at={"seconds": 1 << 62})], codec=1), Status.BAD_REQUEST),
        (
            Write.WriteRequest(messages=[MessageData(metadata_items=[topic.MetadataItem(key="ydb.codec")])], codec=1),
            Status.BAD_REQUEST,
        ),
    ],
)
def test_requests_that_break_a_rule_end_their_session(raw: RawYdb, path: str, request_: Any, status: int) -> None:
    stream, _ = raw.writer(path, producer_id="p", message_group_id="p")
    stream.send(write_request=request_)
    assert stream.ended()[0] == status


def test_a_session_ends_with_the_acks_when_its_client_half_closes(raw: RawYdb, path: str) -> None:
    stream, _ = raw.writer(path, producer_id="p", message_group_id="p")
    stream.send(write_request=Write.WriteRequest(messages=[MessageData(seq_no=1, data=b"x")], codec=1))
    stream.close_out()
    assert outcomes(stream.expect("write_response")) == [(1, "written")]
    assert stream.ended() == (Status.SUCCESS, "")


def test_tokens_are_renewed_in_a_stream(raw: RawYdb, path: str) -> None:
    for stream in (raw.writer(path)[0], raw.reader(path, "c", credit=0)):
        if stream.call is None:
            continue
        stream.send(update_token_request=topic.UpdateTokenRequest(token=""))
        kinds = [stream.receive().WhichOneof("server_message")]
        if kinds == ["start_partition_session_request"]:
            kinds = [stream.receive().WhichOneof("server_message")]
        assert kinds == ["update_token_response"]


# Reading


def test_a_credit_of_one_byte_gives_one_message(raw: RawYdb, path: str) -> None:
    writer, _ = raw.writer(path)
    put(writer, [1, 2, 3], b"x" * 100)
    stream = raw.reader(path, "c", credit=1)
    start(stream)
    for offset in range(3):
        response = stream.expect("read_response")
        found = [each.offset for batch in response.partition_data[0].batches for each in batch.message_data]
        assert found == [offset]
        assert response.bytes_size > 100
        # The debt is given back, and one byte more.
        stream.send(read_request=Read.ReadRequest(bytes_size=response.bytes_size))


def test_nothing_is_sent_before_a_partition_has_begun(raw: RawYdb, path: str) -> None:
    writer, _ = raw.writer(path)
    put(writer, [1])
    stream = raw.reader(path, "c")
    asked = stream.expect("start_partition_session_request")
    number = asked.partition_session.partition_session_id
    assert (asked.partition_session.path, asked.committed_offset) == (path, 0)
    # Its answer comes first, since nothing else may.
    stream.send(partition_session_status_request=Read.PartitionSessionStatusRequest(partition_session_id=number))
    status = stream.expect("partition_session_status_response")
    assert (status.partition_offsets.end, status.committed_offset, status.read_offset) == (1, 0, 0)
    stream.send(start_partition_session_response=Read.StartPartitionSessionResponse(partition_session_id=number))
    assert [each.offset for each in messages(stream, 1)] == [0]


def test_a_client_may_begin_later_and_commit_that(raw: RawYdb, path: str) -> None:
    writer, _ = raw.writer(path)
    put(writer, [1, 2, 3, 4])
    stream = raw.reader(path, "c", credit=0)
    start(stream, read_offset=3, commit_offset=2)
    assert stream.expect("commit_offset_response").partitions_committed_offsets[0].committed_offset == 2
    stream.send(read_request=Read.ReadRequest(bytes_size=1 << 20))
    assert [each.offset for each in messages(stream, 1)] == [3]


def test_ranges_are_committed_once_those_before_them_are(raw: RawYdb, path: str) -> None:
    writer, _ = raw.writer(path)
    put(writer, list(range(1, 11)))
    stream = raw.reader(path, "c", credit=0)
    number = start(stream).partition_session.partition_session_id
    commit_ranges(stream, number, (5, 6), (7, 9))
    commit_ranges(stream, number, (1, 5))
    commit_ranges(stream, number, (0, 1))
    assert committed(stream) == 6
    commit_ranges(stream, number, (6, 7))
    assert committed(stream) == 9
    # What is not known any more is ignored.
    commit_ranges(stream, 99, (0, 1))
    commit_ranges(stream, number, (9, 10))
    assert committed(stream) == 10


def committed(stream: Any) -> int:
    parts = stream.expect("commit_offset_response").partitions_committed_offsets
    return int(parts[0].committed_offset)


@pytest.mark.parametrize("range_", [(0, 0), (1, 0), (-1, 1), (0, 99)])
def test_ranges_that_are_none_end_their_session(raw: RawYdb, path: str, range_: tuple[int, int]) -> None:
    writer, _ = raw.writer(path)
    put(writer, [1])
    stream = raw.reader(path, "c", credit=0)
    commit_ranges(stream, start(stream).partition_session.partition_session_id, range_)
    assert stream.ended()[0] == Status.BAD_REQUEST


def test_a_range_that_is_committed_already_ends_its_session(raw: RawYdb, path: str) -> None:
    writer, _ = raw.writer(path)
    put(writer, [1])
    stream = raw.reader(path, "c", credit=0)
    number = start(stream).partition_session.partition_session_id
    commit_ranges(stream, number, (0, 1))
    assert committed(stream) == 1
    commit_ranges(stream, number, (0, 1))
    assert stream.ended()[0] == Status.BAD_REQUEST


def test_ranges_over_what_retention_deleted_are_committed(raw: RawYdb, path: str, site: YdbSite) -> None:
    import headrace

    writer, _ = raw.writer(path)
    put(writer, [1, 2, 3, 4])
    stream = raw.reader(path, "c", credit=0)
    number = start(stream).partition_session.partition_session_id
    with headrace.connect(site.server.url) as client:
        client.delete_messages(path.removeprefix("/local/"), {0: 2})
    commit_ranges(stream, number, (2, 3))
    assert committed(stream) == 3


def test_a_partition_goes_to_the_second_reader_once_the_first_gives_it_up(raw: RawYdb, path: str) -> None:
    wide = created(raw, f"{path}-wide", partitions=2)
    for partition in (0, 1):
        put(raw.writer(wide, partition_id=partition)[0], [1])
    first = raw.reader(wide, "c")
    begun = {start(first).partition_session.partition_id for _ in range(2)}
    assert begun == {0, 1}
    messages(first, 2)
    second = raw.reader(wide, "c")
    asked = first.expect("stop_partition_session_request")
    assert asked.graceful
    number = asked.partition_session_id
    # It commits first what it has, and then gives it up.
    commit_ranges(first, number, (0, 1))
    assert committed(first) == 1
    first.send(stop_partition_session_response=Read.StopPartitionSessionResponse(partition_session_id=number))
    given = start(second)
    assert given.committed_offset == 1
    # The other half is taken over when the first ends.
    first.close()
    taken = start(second)
    assert {given.partition_session.partition_id, taken.partition_session.partition_id} == {0, 1}
    assert taken.committed_offset == 0
    assert [each.offset for each in messages(second, 1)] == [0]


def test_a_session_ends_when_its_client_half_closes(raw: RawYdb, path: str) -> None:
    stream = raw.reader(path, "c")
    start(stream)
    stream.close_out()
    assert stream.ended() == (Status.SUCCESS, "")


def test_a_topic_that_grows_starts_its_new_partitions(raw: RawYdb, path: str) -> None:
    stream = raw.reader(path, "c")
    start(stream)
    settings = topic.AlterPartitioningSettings(set_min_active_partitions=2)
    request = topic.AlterTopicRequest(path=path, alter_partitioning_settings=settings)
    assert raw.call("AlterTopic", request).status == Status.SUCCESS
    assert start(stream).partition_session.partition_id == 1
    put(raw.writer(path, partition_id=1)[0], [1])
    assert len(messages(stream, 1)) == 1


def test_without_a_consumer_partitions_are_chosen_and_nothing_is_committed(raw: RawYdb, path: str) -> None:
    put(raw.writer(path)[0], [1, 2])
    stream = raw.reader(path, "", partition_ids=[0])
    number = start(stream, read_offset=1).partition_session.partition_session_id
    assert [each.offset for each in messages(stream, 1)] == [1]
    commit_ranges(stream, number, (0, 1))
    assert stream.ended()[0] == Status.BAD_REQUEST


@pytest.mark.parametrize(
    ("init", "status"),
    [
        (Read.InitRequest(consumer="c"), Status.BAD_REQUEST),
        (Read.InitRequest(topics_read_settings=[{"path": "PATH"}], consumer="other"), Status.SCHEME_ERROR),
        (Read.InitRequest(topics_read_settings=[{"path": "PATH"}]), Status.BAD_REQUEST),
        (Read.InitRequest(topics_read_settings=[{"path": "PATH", "partition_ids": [3]}]), Status.SCHEME_ERROR),
        (Read.InitRequest(topics_read_settings=[{"path": "PATH"}, {"path": "PATH"}], consumer="c"), Status.BAD_REQUEST),
        (Read.InitRequest(topics_read_settings=[{"path": "none"}], consumer="c"), Status.SCHEME_ERROR),
    ],
)
def test_sessions_that_cannot_read_say_why(raw: RawYdb, path: str, init: Any, status: int) -> None:
    wanted = Read.InitRequest()
    wanted.CopyFrom(init)
    for each in wanted.topics_read_settings:
        each.path = path if each.path == "PATH" else each.path
    stream = raw.stream("StreamRead", Read)
    stream.send(init_request=wanted)
    assert stream.ended()[0] == status


def test_a_commit_by_another_ends_the_session_that_reads(raw: RawYdb, path: str) -> None:
    put(raw.writer(path)[0], [1, 2, 3])
    stream = raw.reader(path, "c")
    start(stream)
    messages(stream, 3)
    request = topic.CommitOffsetRequest(path=path, consumer="c", offset=1)
    assert raw.call("CommitOffset", request).status == Status.SUCCESS
    assert stream.ended()[0] == Status.SESSION_EXPIRED
    assert start(raw.reader(path, "c")).committed_offset == 1


def test_a_commit_that_names_the_session_lets_it_go_on(raw: RawYdb, path: str) -> None:
    put(raw.writer(path)[0], [1, 2, 3])
    stream = raw.stream("StreamRead", Read)
    settings = Read.InitRequest.TopicReadSettings(path=path)
    stream.send(init_request=Read.InitRequest(topics_read_settings=[settings], consumer="c"))
    session = stream.expect("init_response").session_id
    number = start(stream).partition_session.partition_session_id
    for offset in (2, 0, 1):
        request = topic.CommitOffsetRequest(path=path, consumer="c", offset=offset, read_session_id=session)
        assert raw.call("CommitOffset", request).status == Status.SUCCESS
    commit_ranges(stream, number, (1, 3))
    assert committed(stream) == 3


@pytest.mark.parametrize("offset", [-1, 4])
def test_a_commit_outside_of_the_partition_is_refused(raw: RawYdb, path: str, offset: int) -> None:
    put(raw.writer(path)[0], [1, 2, 3])
    request = topic.CommitOffsetRequest(path=path, consumer="c", offset=offset)
    assert raw.call("CommitOffset", request).status == Status.BAD_REQUEST

"""Writers against a real broker, call by call as Spark makes them: in tasks, and once in the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import (
    AnswerLost,
    CommitConflict,
    InvalidInput,
    InvalidMessage,
    ServerFailed,
    StageNotFound,
    TopicNotFound,
)
from headrace.spark.connection import Connection
from headrace.spark.options import write_options
from headrace.spark.source import HeadraceSource
from headrace.spark.write import rows as rows_module
from headrace.spark.write.fingerprint import BatchId
from headrace.spark.write.several_topics import publish_together
from headrace.spark.write.staging import StagedPiece, publish_stages
from headrace.spark.write.writers import BatchWriter, StreamWriter, Written
from tests.spark.topics import numbers, values_of

SINK = "sink-1"
TEXT = StringType()


def batch(values: list[bytes], **columns: Sequence[object]) -> pa.RecordBatch:
    more = {name: pa.array(column) for name, column in columns.items()}
    return pa.record_batch({"value": pa.array(values, pa.binary()), **more})


def stream_writer(url: str, topic: str | None, **options: str) -> StreamWriter:
    """A writer by way of pickle, as tasks and commits get it."""
    given = {"url": url, "sinkId": SINK, **options, **({} if topic is None else {"topic": topic})}
    made: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(write_options(given, is_stream=True))))
    return made


def batch_writer(url: str, topic: str, **options: str) -> BatchWriter:
    given = {"url": url, "topic": topic, **options}
    made: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(write_options(given, is_stream=False))))
    return made


def expire_stages(broker: Broker) -> int:
    """Let everything that waits expire; how many stages that were."""
    return broker.store.stages.expire(1 << 62)


def test_rows_for_many_topics_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "WAITING_BYTES", 10_000)
    pieces = rows_module.Pieces()
    waiting: dict[str, int] = {}
    for number in range(500):
        topic = f"topic-{number % 50}"
        waiting[topic] = waiting.get(topic, 0) + 1
        sent = pieces.add(topic, batch([b"x" * 100] * (1 + number % 3)))
        if sent is not None:
            assert sent[1].num_rows >= waiting.pop(sent[0])
        assert sum(waiting.values()) * 100 <= 10_000 + 300
    left = {topic: rows.num_rows for topic, rows in pieces.rest()}
    assert left.keys() == waiting.keys()


def test_rows_that_repeat_are_told(client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    client.create_topic(topic, partitions=1)
    sent = batch([b"a", b"b", b"c"], producer_id=["till"] * 3, seqno=[1, 3, 2])
    writer = stream_writer(url, topic)
    writer.commit([writer.write(iter([sent]))], 0)
    assert values_of(client, topic) == [b"a", b"b"]
    assert f"topic {topic!r}: 1 of 3 rows were not written" in caplog.text
    caplog.clear()
    writer.commit([writer.write(iter([sent]))], 1)
    assert f"topic {topic!r}: 3 of 3 rows were not written" in caplog.text
    caplog.clear()
    writer.commit([writer.write(iter([sent]))], 1)
    assert caplog.text == ""
    assert values_of(client, topic) == [b"a", b"b"]


@pytest.fixture(autouse=True)
def no_stages(broker: Broker) -> None:
    """Every test begins with none."""
    expire_stages(broker)


def test_rows_appear_only_with_the_commit(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    messages: list[WriterCommitMessage | None] = [writer.write(iter([batch(numbers(0, 3))])), writer.write(iter([]))]
    assert values_of(client, topic) == []
    stream_writer(url, topic).commit(messages, 0)
    assert values_of(client, topic) == numbers(0, 3)


def test_a_micro_batch_that_is_done_again_publishes_nothing(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    for values in (numbers(0, 3), [b"2", b"0", b"1", b"9"]):
        # The order, and even the rows, may be others when it is done again.
        writer.commit([writer.write(iter([batch(values)]))], 0)
    assert values_of(client, topic) == numbers(0, 3)
    writer.commit([writer.write(iter([batch([b"next"])]))], 1)
    assert values_of(client, topic) == [*numbers(0, 3), b"next"]


def test_a_twin_of_a_task_is_published_once(broker: Broker, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    taken, _twin = (writer.write(iter([batch(numbers(0, 3))])) for _ in range(2))
    writer.commit([taken], 0)
    assert values_of(client, topic) == numbers(0, 3)
    # What nobody names waits until it expires.
    assert expire_stages(broker) == 1


def test_a_task_that_fails_drops_what_it_staged(
    broker: Broker, client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic)
    monkeypatch.setattr(rows_module, "PIECE_ROWS", 1)

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch([b"a"])
        yield batch([b"b"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stream_writer(url, topic).write(failing())
    assert expire_stages(broker) == 0
    assert values_of(client, topic) == []


def test_a_piece_that_was_staged_twice_fails_its_task(
    broker: Broker, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    write = broker.store.stages.write

    def write_twice(topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int, places: None) -> int:
        write(topic_id, stage, rows, now_us, places)
        return write(topic_id, stage, rows, now_us, places)

    with monkeypatch.context() as patched:
        patched.setattr(broker.store.stages, "write", write_twice)
        with pytest.raises(ServerFailed, match="staged 4 rows of 2"):
            stream_writer(url, topic).write(iter([batch([b"a", b"b"])]))
    assert expire_stages(broker) == 0


def test_an_aborted_batch_leaves_nothing(broker: Broker, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    for writer in (stream_writer(url, topic), batch_writer(url, topic)):
        message = writer.write(iter([batch(numbers(0, 3))]))
        if isinstance(writer, StreamWriter):
            writer.abort([message, None], 0)
        else:
            writer.abort([message, None])
        assert expire_stages(broker) == 0
    assert values_of(client, topic) == []


@pytest.mark.parametrize("does", ["publish_staged", "commit_transaction"])
def test_the_commit_of_a_large_batch_gets_more_time(
    client: Client, url: str, topic: str, does: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic)
    (piece,) = stream_writer(url, topic).write(iter([batch(numbers(0, 3))])).pieces
    assert piece.bytes >= 3
    connection, commit = Connection(url, timeout_seconds=0.0), getattr(Client, does)
    lost: list[str] = []

    def lose(asked: Client, *args: Any, **given: Any) -> Any:
        answer = commit(asked, *args, **given)
        if len(lost) % 2 == 0:
            lost.append(does)
            raise AnswerLost(url, "the deadline passed")
        lost.append("")
        return answer

    def publish(pieces: list[StagedPiece]) -> None:
        if does == "publish_staged":
            publish_stages(connection, topic, pieces, SINK, BatchId(0), "sinkId")
        else:
            publish_together(connection, pieces, SINK, BatchId(0))

    monkeypatch.setattr(Client, does, lose)
    with pytest.raises(AnswerLost):
        publish([replace(piece, bytes=0)])
    lost.clear()
    publish([replace(piece, bytes=1 << 30)])
    assert lost == [does, ""]
    assert values_of(client, topic) == numbers(0, 3)


def test_a_commit_whose_stages_are_gone_fails_whole(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    kept, gone = (writer.write(iter([batch([value])])) for value in (b"a", b"b"))
    client.drop_stages(topic, [piece.stage for piece in gone.pieces])
    with pytest.raises(StageNotFound):
        writer.commit([kept, gone], 0)
    assert values_of(client, topic) == []


def test_a_sink_with_an_older_checkpoint_is_told_so(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    writer.commit([writer.write(iter([batch([b"a"])]))], 7)
    with pytest.raises(InvalidInput, match="older than the sink"):
        writer.commit([writer.write(iter([batch([b"b"])]))], 0)
    named = batch_writer(url, topic, sinkId=SINK, batchId="6")
    with pytest.raises(InvalidInput, match="older than the sink"):
        named.commit([named.write(iter([batch([b"c"])]))])
    assert values_of(client, topic) == [b"a"]


def planned(checkpoint: Path, number: int, offsets: str) -> str:
    """A checkpoint with the offsets of a batch, as Spark writes them."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offsets}")
    return str(checkpoint)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_batch_of_a_copied_checkpoint_is_refused(
    client: Client, url: str, topic: str, tmp_path: Path, scheme: str
) -> None:
    client.create_topic(topic)
    one = stream_writer(url, topic, checkpointLocation=scheme + planned(tmp_path / "one", 3, "100"))
    twin = stream_writer(url, topic, checkpointLocation=scheme + planned(tmp_path / "twin", 3, "150"))
    one.commit([one.write(iter([batch([b"a", b"b"])]))], 3)
    one.commit([one.write(iter([batch([b"b", b"a"])]))], 3)
    with pytest.raises(CommitConflict, match="another batch 3"):
        twin.commit([twin.write(iter([batch([b"c"])]))], 3)
    assert values_of(client, topic) == [b"a", b"b"]


@pytest.mark.parametrize("options", [{}, {"checkpointLocation": "hdfs://name/checkpoint"}], ids=["unknown", "remote"])
def test_a_second_query_with_the_id_of_another_is_refused(
    client: Client, url: str, topic: str, options: dict[str, str]
) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic, **options)
    for query in ("one", "one"):
        writer.commit([replace(writer.write(iter([batch([b"a"])])), query_id=query)], 0)
    with pytest.raises(CommitConflict):
        writer.commit([replace(writer.write(iter([batch([b"b"])])), query_id="other")], 0)
    named = batch_writer(url, topic, sinkId=SINK, batchId="0")
    with pytest.raises(CommitConflict):
        named.commit([replace(named.write(iter([batch([b"c"])])), query_id="other")])
    assert values_of(client, topic) == [b"a"]


@pytest.mark.parametrize("fault", ["missing", "unreadable"])
def test_a_batch_whose_offsets_cannot_be_read_is_not_taken_for_another(
    client: Client, url: str, topic: str, tmp_path: Path, fault: str
) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic, sinkId=topic, checkpointLocation=planned(tmp_path, 0, "100"))
    file, kept = tmp_path / "offsets" / "0", tmp_path / "kept"
    file.rename(kept)
    if fault == "unreadable":
        file.mkdir()
    with pytest.raises(InvalidInput, match="offsets/0 cannot be read"):
        writer.commit([writer.write(iter([batch([b"a"])]))], 0)
    if fault == "unreadable":
        file.rmdir()
    kept.rename(file)
    for _ in range(2):
        writer.commit([writer.write(iter([batch([b"a"])]))], 0)
    assert values_of(client, topic) == [b"a"]


def test_without_a_sink_id_the_query_is_the_sink(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = StreamWriter(write_options({"url": url, "topic": topic}, is_stream=True))
    pieces = writer.write(iter([batch([b"a"])])).pieces
    writer.commit([Written((), "query-1"), Written(pieces, "query-1")], 3)
    assert client.last_commit(topic, "query-1") == 3
    with pytest.raises(InvalidInput, match="set the option sinkId"):
        writer.commit([writer.write(iter([batch([b"b"])]))], 4)


def test_rows_go_to_the_topics_they_name_whatever_the_case(client: Client, url: str, topic: str) -> None:
    other = f"{topic}-other"
    client.create_topic(topic)
    client.create_topic(other)
    writer = stream_writer(url, None, sinkId=topic)
    named = [topic, other, topic.upper(), other, topic.title()]
    messages: list[WriterCommitMessage | None] = [
        writer.write(iter([batch(numbers(0, 5), topic=named)])),
        writer.write(iter([batch(numbers(5, 6), topic=[topic.upper()])])),
    ]
    for _ in range(2):
        writer.commit(messages, 0)
    assert sorted(values_of(client, topic)) == [b"0", b"2", b"4", b"5"]
    assert values_of(client, other) == [b"1", b"3"]


def test_a_row_that_goes_nowhere_is_named(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(InvalidMessage, match="row 1: topic is null"):
        stream_writer(url, None).write(iter([batch(numbers(0, 2), topic=[topic, None])]))


def test_the_topic_option_comes_before_the_column(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = stream_writer(url, topic)
    writer.commit([writer.write(iter([batch([b"a"], topic=["elsewhere"])]))], 0)
    assert values_of(client, topic) == [b"a"]


def test_a_missing_topic_is_an_error_unless_it_is_to_be_made(client: Client, url: str, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        stream_writer(url, topic)
    with pytest.raises(TopicNotFound):
        stream_writer(url, None).write(iter([batch([b"a"], topic=[topic])]))
    assert topic not in client.list_topics()
    settings = '{"retention_seconds": 60, "codecs": ["raw"]}'
    stream_writer(url, topic, createTopic="true", partitions="3", topicSettings=settings)
    made = client.describe_topic(topic)
    assert (made.partitions, made.settings.retention_seconds, made.settings.codecs) == (3, 60, ("raw",))
    by_column = stream_writer(url, None, sinkId=topic, createTopic="true", partitions="2", topicSettings=settings)
    by_column.commit([by_column.write(iter([batch([b"a"], topic=[f"{topic}-made"])]))], 0)
    assert client.describe_topic(f"{topic}-made").partitions == 2
    assert client.describe_topic(f"{topic}-made").settings.retention_seconds == 60
    assert values_of(client, f"{topic}-made") == [b"a"]


def test_at_least_once_publishes_in_the_tasks(broker: Broker, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    writer = batch_writer(url, topic, delivery="at-least-once")
    message = writer.write(iter([batch(numbers(0, 3)), batch(numbers(3, 5))]))
    assert values_of(client, topic) == numbers(0, 5)
    writer.commit([message])
    assert values_of(client, topic) == numbers(0, 5)
    assert expire_stages(broker) == 0


def test_a_named_batch_is_written_once(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    for _ in range(2):
        named = batch_writer(url, topic, sinkId="nightly", batchId="7")
        named.commit([named.write(iter([batch([b"named"])]))])
        unnamed = batch_writer(url, topic)
        unnamed.commit([unnamed.write(iter([batch([b"unnamed"])]))])
    assert values_of(client, topic) == [b"named", b"unnamed", b"unnamed"]


def test_many_pieces_keep_their_order(client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_topic(topic)
    monkeypatch.setattr(rows_module, "PIECE_ROWS", 3)
    writer = batch_writer(url, topic)
    message = writer.write(batch(numbers(start, start + 2)) for start in range(0, 20, 2))
    assert len(message.pieces) == 5
    writer.commit([message])
    assert values_of(client, topic) == numbers(0, 20)


@pytest.mark.parametrize(
    ("schema", "topic", "said"),
    [
        ({"key": TEXT}, "t", "'value' missing"),
        ({"value": IntegerType()}, "t", "column value is of type int: it must be string or binary"),
        ({"value": TEXT, "attributes": ArrayType(TEXT)}, "t", "column attributes"),
        ({"value": TEXT, "attributes": MapType(TEXT, IntegerType())}, "t", "column attributes"),
        ({"value": TEXT, "seqno": TEXT}, "t", "column seqno is of type string: it must be bigint"),
        ({"value": TEXT, "created_at": DateType()}, "t", "column created_at"),
        ({"value": TEXT, "created_at": TimestampNTZType()}, "t", "column created_at is of type timestamp_ntz"),
        ({"value": TEXT, "offset": LongType()}, "t", "column is 'offset': it cannot be written"),
        ({"value": TEXT, "VALUE": TEXT}, "t", "more than once"),
        ({"value": TEXT}, None, ".option('topic', …)"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_cannot_be_written_is_refused_before_a_server_is_asked(
    schema: dict[str, DataType], topic: str | None, said: str, is_stream: bool
) -> None:
    # Nobody listens there.
    source = HeadraceSource({"url": "headrace://127.0.0.1:1", **({} if topic is None else {"topic": topic})})
    kind = StructType([StructField(name, column) for name, column in schema.items()])
    with pytest.raises(InvalidInput) as refused:
        source.streamWriter(kind, False) if is_stream else source.writer(kind, False)
    assert said in str(refused.value)


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(InvalidInput, match="append"):
        HeadraceSource({"topic": "t"}).writer(StructType([StructField("value", TEXT)]), True)

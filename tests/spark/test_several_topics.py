"""A batch to several topics: in all of them or in none, and once, however its rows are routed when it is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import CommitConflict, InvalidInput, StageNotFound
from headrace.core.publish.state import CommitKey
from headrace.spark.options import write_options
from headrace.spark.write.fingerprint import batch_id
from headrace.spark.write.writers import BatchWriter, StreamWriter, Written
from tests.spark.starting import PatientQuery
from tests.spark.topics import PATIENCE_SECONDS, numbers, publish, read_stream, values_of


class Site:
    """Two topics, and a sink that writes to both."""

    def __init__(self, client: Client, url: str, topic: str) -> None:
        self.client = client
        self.url = url
        self.a, self.b = f"{topic}-a", f"{topic}-b"
        self.sink = f"{topic}-sink"
        for name in (self.a, self.b):
            client.create_topic(name)

    def writer(self, **options: str) -> StreamWriter:
        return StreamWriter(write_options({"url": self.url, "sinkId": self.sink, **options}, is_stream=True))

    def stage(self, writer: StreamWriter, *routes: str) -> Written:
        """Rows 0, 1 and so on for the topics named; what Spark tells a task is told here."""
        written = writer.write(iter([rows(range(len(routes)), routes)]))
        return replace(written, query_id="query")

    def commit(self, *routes: str, number: int = 0, **options: str) -> None:
        writer = self.writer(**options)
        writer.commit([self.stage(writer, *routes)], number)

    @property
    def values(self) -> tuple[list[bytes], list[bytes]]:
        return sorted(values_of(self.client, self.a)), sorted(values_of(self.client, self.b))


def rows(values: Sequence[int], routes: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % value for value in values], "topic": list(routes)})


@pytest.fixture
def site(client: Client, url: str, topic: str) -> Site:
    return Site(client, url, topic)


@pytest.mark.parametrize("routes", ["ab", "ba", "b", "aaaa", ""])
def test_a_published_batch_publishes_nothing_more_whatever_it_has(site: Site, routes: str) -> None:
    """The driver was killed after the commit and before Spark recorded it, and chance routes the rows anew."""
    site.commit(site.a, site.b)
    for _ in range(2):
        site.commit(*(getattr(site, name) for name in routes))
        assert site.values == ([b"0"], [b"1"])
    site.commit(site.b, number=1)
    assert site.values == ([b"0"], [b"0", b"1"])


def test_a_batch_that_fails_in_one_topic_is_in_none(site: Site) -> None:
    writer = site.writer()
    staged = site.stage(writer, site.a, site.b, site.a)
    site.client.drop_stages(site.b, [piece.stage for piece in staged.pieces if piece.topic == site.b])
    with pytest.raises(StageNotFound):
        writer.commit([staged], 0)
    assert site.values == ([], [])
    site.commit(site.b, site.b, site.a)
    assert site.values == ([b"2"], [b"0", b"1"])


def test_tasks_spell_the_name_of_a_topic_as_they_like(site: Site) -> None:
    site.commit(site.a, site.a.upper(), site.b)
    assert site.values == ([b"0", b"1"], [b"2"])


def test_a_second_query_with_the_id_of_another_is_refused(site: Site) -> None:
    site.commit(site.a, site.b)
    for topic in (site.a, site.b):
        writer = site.writer()
        with pytest.raises(CommitConflict, match="two jobs write with one id"):
            writer.commit([replace(site.stage(writer, topic), query_id="another")], 0)
    assert site.values == ([b"0"], [b"1"])


def test_the_stages_of_a_repeated_batch_do_not_wait(broker: Broker, site: Site) -> None:
    broker.store.stages.expire(1 << 62)
    site.commit(site.a, site.b)
    site.commit(site.b, site.a)
    assert broker.store.stages.expire(1 << 62) == 0


def test_a_batch_that_an_earlier_version_interrupted_is_finished(site: Site, tmp_path: Path) -> None:
    """It remembered keys by topic."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}")
    fingerprint = batch_id(0, str(tmp_path), "query").fingerprint
    staged = site.client.stage(site.a, [rows([0], [site.a]).select(["value"])])
    site.client.publish_staged(site.a, [staged], CommitKey(site.sink, 0, fingerprint))
    with pytest.raises(CommitConflict, match=f"another batch 0 to topic '{site.a}'"):
        site.commit(site.a, site.b)
    for _ in range(2):
        site.commit(site.a, site.b, checkpointLocation=str(tmp_path))
    assert site.values == ([b"0"], [b"1"])


def test_an_older_checkpoint_is_told_so(site: Site) -> None:
    site.commit(site.a, site.b, number=7)
    with pytest.raises(InvalidInput, match="older than the sink"):
        site.commit(site.a, site.b, number=6)


def named_writer(site: Site, batch: str) -> BatchWriter:
    return BatchWriter(write_options({"url": site.url, "sinkId": site.sink, "batchId": batch}, is_stream=False))


def test_a_named_write_to_several_topics_is_made_once_too(site: Site) -> None:
    for routes in ([site.a, site.b], [site.b, site.a]):
        writer = named_writer(site, "7")
        writer.commit([writer.write(iter([rows([0, 1], routes)]))])
    assert site.values == ([b"0"], [b"1"])


def test_another_write_with_the_number_of_one_to_other_topics_is_refused(site: Site) -> None:
    """It would be lost if it counted as a repeated one."""
    writer = named_writer(site, "7")
    writer.commit([writer.write(iter([rows([0], [site.a])]))])
    with pytest.raises(CommitConflict):
        writer.commit([writer.write(iter([rows([0], [site.b])]))])
    assert site.values == ([b"0"], [])


def test_a_number_without_room_for_a_fingerprint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="batchId is 2147483648"):
        write_options({"sinkId": "s", "batchId": "2147483648"}, is_stream=False)
    assert write_options({"topic": "t", "sinkId": "s", "batchId": "2147483648"}, is_stream=False).batch_id == 1 << 31


def test_a_stream_to_several_topics_goes_on_over_restarts(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path, site: Site
) -> None:
    """On Spark: every start of the query is a run of its own, which asks once."""
    client.create_topic(topic)
    frame = read_stream(spark, url, topic, startingOffsets="earliest", maxMessagesPerTrigger="20")
    routed = frame.selectExpr("value", f"if(offset % 2 = 0, '{site.a}', '{site.b}') AS topic")
    writing = routed.writeStream.format("headrace").options(url=url, checkpointLocation=str(tmp_path / "checkpoint"))
    for start in (0, 60):
        publish(client, topic, numbers(start, start + 60))
        PatientQuery(writing.trigger(availableNow=True).start).finish(PATIENCE_SECONDS)
    assert [sorted(values, key=int) for values in site.values] == [numbers(0, 120)[0::2], numbers(0, 120)[1::2]]

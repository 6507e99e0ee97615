"""A batch to several topics that is interrupted between two commits: finished, done already, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import BatchChanged, CommitConflict, InvalidInput, StageNotFound
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

    def stage(self, writer: StreamWriter | BatchWriter, *routes: str, run: str | None = None) -> Written:
        """Rows 0, 1 and so on for the topics named; what Spark tells a task is told here."""
        written = writer.write(iter([rows(range(len(routes)), routes)]))
        return replace(written, query_id="query", run_id=run)

    def interrupt(self, *routes: str, number: int = 0) -> None:
        """A batch that is published to the first topic only."""
        writer = self.writer()
        staged = self.stage(writer, *routes)
        self.client.drop_stages(self.b, [piece.stage for piece in staged.pieces if piece.topic == self.b])
        with pytest.raises(StageNotFound):
            writer.commit([staged], number)

    def commit(self, *routes: str, number: int = 0, run: str | None = None, **options: str) -> None:
        writer = self.writer(**options)
        writer.commit([self.stage(writer, *routes, run=run)], number)

    @property
    def values(self) -> tuple[list[bytes], list[bytes]]:
        return sorted(values_of(self.client, self.a)), sorted(values_of(self.client, self.b))


def rows(values: Sequence[int], routes: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % value for value in values], "topic": list(routes)})


@pytest.fixture
def site(client: Client, url: str, topic: str) -> Site:
    return Site(client, url, topic)


def test_the_same_rows_finish_an_interrupted_batch(site: Site) -> None:
    site.interrupt(site.a, site.b, site.a, site.b)
    assert site.values == ([b"0", b"2"], [])
    writer = site.writer()
    # In another order, and by other tasks.
    tasks = [rows([3, 0], [site.b, site.a]), rows([2], [site.a]), rows([1], [site.b])]
    writer.commit([replace(writer.write(iter([task])), query_id="query") for task in tasks], 0)
    assert site.values == ([b"0", b"2"], [b"1", b"3"])
    site.commit(site.b, number=1)
    assert site.values == ([b"0", b"2"], [b"0", b"1", b"3"])


@pytest.mark.parametrize("routes", ["ba", "bb", "a", "aab", "b"])
def test_other_rows_or_routes_are_refused(site: Site, routes: str) -> None:
    """Else a row would be lost or doubled: also if the topic that has the batch gets nothing of it now."""
    site.interrupt(site.a, site.b)
    for _ in range(2):
        with pytest.raises(BatchChanged, match=f"published its batch 0 to topic '{site.a}'"):
            site.commit(*(getattr(site, name) for name in routes))
        assert site.values == ([b"0"], [])


def test_a_second_query_with_the_id_of_another_is_refused(site: Site) -> None:
    site.commit(site.a, site.b)
    writer = site.writer()
    with pytest.raises(CommitConflict, match="two jobs write with one id"):
        writer.commit([replace(site.stage(writer, site.b, site.a), query_id="another")], 0)
    assert site.values == ([b"0"], [b"1"])


def test_another_query_with_the_same_id_in_other_topics_does_no_harm(site: Site) -> None:
    for name, query in ((site.a, "one"), (site.b, "two")):
        writer = site.writer()
        for _ in range(2):
            writer.commit([replace(site.stage(writer, name), query_id=query)], 0)
    assert site.values == ([b"0"], [b"0"])


def test_a_refused_batch_is_published_whole_by_another_sink(site: Site) -> None:
    site.interrupt(site.a, site.b)
    for _ in range(2):
        site.commit(site.b, site.a, sinkId=f"{site.sink}-2")
    assert site.values == ([b"0", b"1"], [b"0"])


def test_a_batch_that_lost_all_its_rows_is_refused(site: Site) -> None:
    site.interrupt(site.a, site.b)
    with pytest.raises(BatchChanged):
        site.writer().commit([Written((), "query")], 0)
    site.writer().commit([Written((), "query")], 1)


@pytest.mark.parametrize("routes", ["ba", "b", "aaaa", ""])
def test_a_complete_batch_publishes_nothing_more_whatever_it_has(site: Site, routes: str) -> None:
    """The driver was killed after the last commit, and before Spark recorded it."""
    site.commit(site.a, site.b)
    site.commit(*(getattr(site, name) for name in routes))
    assert site.values == ([b"0"], [b"1"])


def test_the_stages_of_a_refused_or_repeated_batch_do_not_wait(broker: Broker, site: Site) -> None:
    broker.store.stages.expire(1 << 62)
    site.commit(site.a, site.b)
    site.commit(site.b, site.a)
    assert broker.store.stages.expire(1 << 62) == 0


def test_only_the_first_batch_of_a_run_may_be_a_repeated_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []
    last_commits = Client.last_commits

    def counted(client: Client, topics: Sequence[str], writer: str) -> dict[str, CommitKey]:
        asked.append(topics)
        return last_commits(client, topics, writer)

    monkeypatch.setattr(Client, "last_commits", counted)
    for number, run in enumerate(["first", "first", "second", "second"]):
        site.commit(site.a, site.b, number=number, run=run)
    assert sum(site.a in topics for topics in asked) == 2
    assert site.values == ([b"0"] * 4, [b"1"] * 4)


def test_all_topics_are_asked_however_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.write.several_topics.LAST_COMMITS_TOPICS_MAX", 1)
    site.interrupt(site.a, site.b)
    with pytest.raises(BatchChanged):
        site.commit(site.b)


def test_a_batch_that_an_earlier_version_interrupted_is_finished_by_its_rules(site: Site, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}")
    fingerprint = batch_id(0, str(tmp_path), "query").fingerprint
    staged = site.client.stage(site.a, [rows([0], [site.a]).select(["value"])])
    site.client.publish_staged(site.a, [staged], CommitKey(site.sink, 0, fingerprint))
    for _ in range(2):
        site.commit(site.a, site.b, checkpointLocation=str(tmp_path))
    assert site.values == ([b"0"], [b"1"])


def test_an_older_checkpoint_is_told_so(site: Site) -> None:
    site.commit(site.a, site.b, number=7)
    with pytest.raises(InvalidInput, match="older than the sink"):
        site.commit(site.a, site.b, number=6)


def named_writer(site: Site, batch: str) -> BatchWriter:
    return BatchWriter(write_options({"url": site.url, "sinkId": site.sink, "batchId": batch}, is_stream=False))


def test_a_named_write_to_several_topics_is_checked_too(site: Site) -> None:
    writer = named_writer(site, "7")
    staged = writer.write(iter([rows([0, 1], [site.a, site.b])]))
    site.client.drop_stages(site.b, [piece.stage for piece in staged.pieces if piece.topic == site.b])
    with pytest.raises(StageNotFound):
        writer.commit([staged])
    with pytest.raises(BatchChanged):
        writer.commit([writer.write(iter([rows([1, 0], [site.a, site.b])]))])
    for _ in range(2):
        writer.commit([writer.write(iter([rows([1, 0], [site.b, site.a])]))])
    assert site.values == ([b"0"], [b"1"])


def test_writes_of_one_batch_to_different_topics_do_not_hinder_each_other(site: Site) -> None:
    for _ in range(2):
        for name in (site.a, site.b):
            writer = named_writer(site, "7")
            writer.commit([writer.write(iter([rows([0], [name])]))])
    assert site.values == ([b"0"], [b"0"])


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

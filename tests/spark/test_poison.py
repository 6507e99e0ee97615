"""Values that do not fit their codec, read by Spark; tests/poison.py has the scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, Undecodable
from headrace.spark.options import read_options
from headrace.spark.reader.splits import Split
from tests import poison
from tests.spark.test_stream_reader import one, reader_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def everything(client: Client, topic: str) -> Split:
    return one(client, topic, 0, len(poison.ROWS))


@pytest.fixture
def poisoned(client: Client, topic: str) -> str:
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_batch(poison.batch())
    return topic


def test_a_task_gives_what_comes_before_and_names_the_message(client: Client, url: str, poisoned: str) -> None:
    for columns in ("value", "offset,value,codec"):
        found: list[bytes] = []
        with pytest.raises(Undecodable) as caught:
            for batch in reader_of(url, poisoned, columns=columns).read(everything(client, poisoned)):
                found += batch.column("value").to_pylist()
        assert found == poison.BEFORE
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.codec) == (poisoned, 0, poison.BAD[0], "gzip")


def test_the_option_is_one_of_three() -> None:
    assert read_options({"topic": "t"}).on_undecodable == "raise"
    assert read_options({"topic": "t", "onUndecodable": "SKIP"}).on_undecodable == "skip"
    with pytest.raises(InvalidInput, match="onUndecodable is 'drop': it must be one of raise, raw, skip"):
        read_options({"topic": "t", "onUndecodable": "drop"})


def test_a_data_frame_of_such_messages(spark: SparkSession, url: str, poisoned: str) -> None:
    reader = spark.read.format("headrace").option("url", url).option("topic", poisoned)
    with pytest.raises(Exception, match=f"offset {poison.BAD[0]} of partition 0 of topic '{poisoned}'"):
        reader.load().select("value").collect()
    skipped = reader.option("onUndecodable", "skip").load().orderBy("offset").toArrow()
    assert skipped["value"].to_pylist() == poison.VALUES
    raw: pa.Table = reader.option("onUndecodable", "raw").load().orderBy("offset").toArrow()
    assert raw["value"].to_pylist() == poison.raw_values()
    assert raw["codec"].to_pylist() == poison.raw_codecs()

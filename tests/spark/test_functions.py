"""The functions of Headrace in Spark: the same numbers as in the broker."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.core.errors import InvalidInput
from headrace.core.hashes.columns import fnv1a64_of, partition_of
from headrace.spark.functions import fnv1a64, partition_for

TEXTS = ["", "a", "user-1", "ß" * 300, None]


def test_hashes_and_partitions_are_those_of_the_broker(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text string").selectExpr(
        "text", "cast(text as binary) as bytes"
    )
    columns = [fnv1a64("text"), fnv1a64(frame.bytes), partition_for("text", 7), partition_for(frame.bytes, 7)]
    found = {row[0]: tuple(row)[1:] for row in frame.select("text", *columns).collect()}
    for text in TEXTS:
        if text is None:
            assert found[text] == (None, None, None, None)
        else:
            data = text.encode()
            signed = (fnv1a64_of(data) + (1 << 63)) % (1 << 64) - (1 << 63)
            chosen = partition_of(data, 7) if data else None
            assert found[text] == (signed, signed, chosen, chosen)


@pytest.mark.parametrize("partitions", [0, -1, 10_001, True, "8"])
def test_a_number_of_partitions_that_no_topic_has_is_refused(partitions: object) -> None:
    with pytest.raises(InvalidInput):
        partition_for("key", partitions)  # type: ignore[arg-type]

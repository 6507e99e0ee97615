"""Topics as temporary views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import headrace.spark
from headrace.client import Client
from tests.spark.topics import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_topics_are_views(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "who": {"type": "string"}}}
    plain, typed, listed = f"{topic}-plain", f"{topic}.typed", f"{topic}-a, b `c`"
    client.create_topic(plain)
    client.create_topic(typed, value_schema=schema)
    client.create_topic(listed)
    publish(client, plain, [b"1", b"2"])
    publish(client, typed, [b'{"id": 2, "who": "b"}', b"{"])
    publish(client, listed, [b"x"])
    names = headrace.spark.views(spark, f"{topic}.*", prefix="t_", url=url)
    assert sorted(names) == sorted(f"t_{name}" for name in (plain, typed, listed))
    counts = [spark.sql(f"SELECT count(*) FROM `t_{name.replace('`', '``')}`").first() for name in (plain, listed)]
    assert counts == [(2,), (1,)]
    rows = spark.sql(f"SELECT id, who, value_error IS NULL AS fits FROM `t_{typed}` ORDER BY offset").collect()
    assert rows == [(2, "b", True), (None, None, False)]
    assert headrace.spark.views(spark, typed, url=url, values="raw", columns=["value"]) == [typed]
    assert spark.table(f"`{typed}`").columns == ["value"]
    publish(client, plain, [b"3"])
    headrace.spark.views(spark, plain, prefix="t_", url=url)
    assert spark.table(f"`t_{plain}`").count() == 3

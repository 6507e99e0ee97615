"""The trace context of a message goes through a pipeline on Spark as an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.client import Client
from headrace.tracing import TRACEPARENT
from tests.pipeline.runs import messages, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTEXT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_message_keeps_its_context_from_topic_to_topic(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b'{"id": 1}', attributes={TRACEPARENT: CONTEXT})
    step = "SELECT to_json(struct(id)) AS value, message.attributes AS attributes FROM source"
    typed: list[dict[str, Any]] = [{}, {"steps": [{"name": "typed", "sql": step}]}]
    for number, steps in enumerate(typed):
        source = {"topic": topic, "mode": "batch"} | ({"schema": "id BIGINT"} if steps else {})
        sink = {"topic": f"{topic}-{number}", "partitions": 1}
        run(spark, {"server": {"url": url}, "source": source, "sink": sink, **steps})
        (row,) = messages(client, f"{topic}-{number}")
        assert (row["value"], dict(row["attributes"])) == (
            b'{"id":1}' if steps else b'{"id": 1}',
            {TRACEPARENT: CONTEXT},
        )

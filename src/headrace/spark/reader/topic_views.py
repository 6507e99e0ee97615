"""Topics as temporary views: `headrace.spark.views(spark)`, a catalog for SQL.

Spark takes catalogs of Java only (`spark.sql.catalog.NAME`), so there is none of Python. Views need no right but to
read, and leave nothing behind. Like any DataFrame of the data source, a view shows what there was when it was first
used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.client import Client
from headrace.core.reports.descriptions import TopicDescription
from headrace.spark.reader.frame import batch_options, option_text
from headrace.spark.reader.topic_selection import described_together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def views(spark: SparkSession, topic_pattern: str = ".*", *, prefix: str = "", **options: Any) -> list[str]:
    """Register each topic that the token may read as a temporary view of its name; returns the names of the views.

    Options are those of the data source, with values of Python. Topics with a schema of their values have its fields as
    columns too, unless the option `values` is given. A view that exists is replaced.
    """
    given = {name: option_text(value) for name, value in options.items()}
    parsed = batch_options({**given, "topicPattern": topic_pattern})
    selection = parsed.subscription

    def readable(client: Client) -> list[TopicDescription]:
        names = [name for name in client.list_topics() if selection.selects(name)]
        return list(described_together(client, names).values())

    registered = []
    for topic in parsed.connection.call(readable):
        is_typed = topic.settings.value_schema is not None and "values" not in map(str.lower, given)
        chosen = {**given, **({"values": "typed"} if is_typed else {}), **_named(topic.name)}
        name = f"{prefix}{topic.name}"
        rows = spark.read.format("headrace").options(**chosen).load()
        rows.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        registered.append(name)
    return registered


def _named(topic: str) -> dict[str, str]:
    """The option that selects a topic: a name with a comma would be two."""
    return {"topicPattern": re.escape(topic)} if "," in topic or topic.strip(" ") != topic else {"topic": topic}

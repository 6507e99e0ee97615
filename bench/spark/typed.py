"""Three of ten fields of JSON values: as columns by the data source, beside `from_json` over the column `value`."""

from __future__ import annotations

from pyspark.sql.functions import col, from_json

from bench.report import Report
from bench.rounds import best_costs, report_speed
from bench.spark.site import Site, to_nowhere

_FIELDS = "id,amount,country"
_WANTED = "id BIGINT, amount DOUBLE, country STRING"
_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": "number"},
        "country": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "user": {"type": "string"},
        "city": {"type": "string"},
        "note": {"type": "string"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "is_paid": {"type": "boolean"},
    },
}
_VALUE = """to_json(struct(
    id, id * 0.25 AS amount, substr('FRJPDEUSBR', int(id % 5) * 2 + 1, 2) AS country,
    '2026-07-01T12:00:00Z' AS at, concat('user-', id % 1000) AS user, concat('city ', id % 50) AS city,
    repeat('n', 40) AS note, id % 9 AS count, id * 0.5 AS price, id % 2 = 0 AS is_paid))"""


def typed(report: Report, site: Site, count: int) -> None:
    """Batch reads, each in the same way."""
    site.topic("typed")
    site.broker.alter_topic("typed", value_schema=_SCHEMA)
    site.write(site.spark.range(count, numPartitions=4).selectExpr(f"{_VALUE} AS value"), "typed")
    ways = {"read": site.read, "headrace.spark.read": site.read_fast}
    costs = best_costs(
        *(
            lambda way=way, is_typed=is_typed: to_nowhere(
                way("typed", values="typed", columns=_FIELDS)
                if is_typed
                else way("typed", columns="value")
                .select(from_json(col("value").cast("string"), _WANTED).alias("v"))
                .select("v.*")
            )
            for way in ways.values()
            for is_typed in (False, True)
        )
    )
    for what, own, ours in zip(ways, costs[::2], costs[1::2], strict=True):
        report.line(f"{what}: three of ten fields by from_json", count / own.seconds, "rows/s")
        report.line(f"{what}: three of ten fields by values=typed", count / ours.seconds, "rows/s")
        report_speed(report, "from_json", ours, own, least=None)

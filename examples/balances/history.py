"""The archived payments as a table: one query in Spark and in DuckDB, whose answers must be the same.

The last part of `make demo`. Started as a program with the address of a server, it prints what Spark answers as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

import headrace

PATIENCE_SECONDS = 600.0
QUERY = "SELECT kind, count(*) AS payments, sum(cents) AS cents FROM payments WHERE value_error IS NULL GROUP BY kind"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["id", "kind", "cents"],
}

Row = tuple[str, int, int]


def run(url: str, directory: Path, say: Any) -> list[Row]:
    """Ask both; the process ends if they differ."""
    with headrace.connect(url) as client:
        archived, total = await_archive(client)
        say(f"The archive has {archived:,} of {total:,} payments as Parquet; the rest comes from the broker.")
        in_duckdb = ask_duckdb(client)
    with open(directory / "spark.log", "a") as log:
        asked = subprocess.run([sys.executable, __file__, url], stdout=subprocess.PIPE, stderr=log, text=True)
    if asked.returncode != 0:
        sys.exit(f"the query failed in Spark:\n{(directory / 'spark.log').read_text()[-2000:]}")
    in_spark = [tuple(row) for row in json.loads(asked.stdout)]
    if in_spark != in_duckdb:
        sys.exit(f"Spark says {in_spark}, and DuckDB says {in_duckdb}")
    return in_duckdb


def await_archive(client: headrace.Client) -> tuple[int, int]:
    """How many payments are archived, and how many there are, once any is archived."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = client.archive("payments")
        if any(found.complete.values()):
            return sum(found.complete.values()), sum(end for _, end in found.offsets.values())
        time.sleep(0.2)
    sys.exit("nothing was archived")


def ask_duckdb(client: headrace.Client) -> list[Row]:
    """The answer of DuckDB."""
    with duckdb.connect() as connection:
        headrace.table("payments", client=client, value_schema=SCHEMA, connection=connection)
        rows = connection.execute(QUERY).fetchall()
    return sorted((kind, count, int(cents)) for kind, count, cents in rows)


def ask_spark(url: str) -> list[Row]:
    """The answer of Spark."""
    from headrace.spark import table
    from headrace.spark.session import session

    spark = session("local[2]")
    table(spark, "payments", url=url, value_schema=SCHEMA).createOrReplaceTempView("payments")
    return sorted((row.kind, row.payments, row.cents) for row in spark.sql(QUERY).collect())


if __name__ == "__main__":
    print(json.dumps(ask_spark(sys.argv[1])))

"""Delta tables of pipelines on a real S3 server, while drivers are killed at chosen requests, or paused and taken over.

A pipeline copies a topic into a table that has every row (`sinks.all`) and into one that has the newest row of each key
(`sink`). Whatever happens, the first has each message once at the end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.spark import Pipeline
from headrace.spark.pipeline.frame.object_store import ObjectStore as Store
from tests.object_store.pipelines import LANDING, PATIENCE_SECONDS, PipelineProcess, await_in, orders, settings_of
from tests.pipeline.runs import publish, run
from tests.server_process import ServerProcess
from tests.storage.archive.object_store import ObjectStore, Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.object_store,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def copying(url: str, place: str, checkpoint: str, **parts: Any) -> dict[str, Any]:
    """The pipeline as its file would describe it, in many batches."""
    return {
        "server": {"url": url},
        "source": {"topic": "orders", "schema": "key BIGINT, id BIGINT", "max_messages_per_trigger": 50},
        "steps": [{"name": "rows", "sql": "SELECT key, id, message.offset AS at FROM source"}],
        "sink": {
            "format": "delta", "path": f"{place}/newest", "mode": "upsert", "keys": ["key"], "order_by": ["id"],
        },
        "sinks": {"all": {"format": "delta", "path": f"{place}/all", "partition_by": ["key"]}},
        "dead_letters": {"format": "delta", "path": f"{place}/dead"},
        "run": {"checkpoint": checkpoint, "report": False},
        **parts,
    }  # fmt: skip


def delta(lake: ObjectStore, url: str) -> Any:
    from deltalake import DeltaTable

    store = Store(f"http://127.0.0.1:{lake.port}", "us-east-1")
    return DeltaTable(url.replace("s3:", "s3a:"), storage_options=store.delta_options())


def check(lake: ObjectStore, place: str, count: int) -> None:
    """Nothing is missing and nothing doubled: key 0 to 6, ids in their order."""
    found = delta(lake, f"{place}/all").to_pyarrow_table()["id"].to_pylist()
    assert sorted(found) == list(range(count))
    newest = delta(lake, f"{place}/newest").to_pyarrow_table().select(["key", "id"]).to_pylist()
    expected = {number % 7: number for number in range(count)}
    assert sorted((row["key"], row["id"]) for row in newest) == sorted(expected.items())


def test_tables_and_checkpoint_on_s3(
    spark: SparkSession, lake: ObjectStore, server: ServerProcess, client: Client
) -> None:
    """Written by a stream, in two runs, with dead letters; then read by Spark's own reader."""
    place = f"s3://{LANDING}/tables/streamed"
    tables = copying(server.url, place, f"s3://{LANDING}/checkpoints/streamed")
    for end in (100, 160):
        publish(client, "orders", [*orders(end - 60 if end > 100 else 0, end), b"no JSON"])
        Pipeline.of(tables).check(spark)
        run(spark, tables)
        check(lake, place, end)
    assert delta(lake, f"{place}/dead").to_pyarrow_table().num_rows == 2
    source = {"format": "delta", "path": f"{place}/all"}
    counted = {"name": "counted", "sql": "SELECT count(*), count(DISTINCT id), sum(key) FROM source"}
    pipeline = Pipeline.of({"source": source, "steps": [counted], "sink": {"format": "report"}})
    pipeline.run(spark)
    assert pipeline.report is not None
    assert pipeline.report.rows == [[160, 160, sum(number % 7 for number in range(160))]]


@pytest.mark.parametrize("fault", ["500", "slow", "lost"])
def test_requests_fail(
    spark: SparkSession, lake: ObjectStore, server: ServerProcess, client: Client, tmp_path: Path, fault: str
) -> None:
    """Each entry of a log is answered so once, and each file that is written."""
    place = f"s3a://{LANDING}/tables/failing-{fault}"
    tables = copying(server.url, place, str(tmp_path / "checkpoint"))
    publish(client, "orders", orders(0, 120))
    seen: set[Request] = set()

    def once(request: Request) -> str | None:
        is_new = request.method == "PUT" and "/tables/" in request.path and request not in seen
        seen.add(request)
        return fault if is_new else None

    with lake.faulty(once):
        run(spark, tables)
        assert any(map(_is_entry("all"), lake.hits)) and any(map(_is_entry("newest"), lake.hits))
    check(lake, place, 120)


def _is_entry(table: str) -> Callable[[Request], bool]:
    """Whether a request writes the entry of a batch: the first entry of a log creates the table."""

    def is_entry(request: Request) -> bool:
        _, _, entry = request.path.partition(f"/{table}/_delta_log/")
        return request.method == "PUT" and entry.strip("0") not in ("", ".json")

    return is_entry


def _is_file(request: Request) -> bool:
    return request.method == "PUT" and "/all/" in request.path and "/_delta_log/" not in request.path


# Where a driver is killed: the request, and whether the store has done it by then.
MOMENTS = [
    (_is_file, "hold"),
    (_is_entry("all"), "hold"),
    (_is_entry("all"), "hold_answer"),
    (_is_entry("newest"), "hold"),
    (_is_entry("newest"), "hold_answer"),
]


def _until(lake: ObjectStore, tables: dict[str, Any], directory: Path, moment: int) -> PipelineProcess:
    """A run that has come to a moment, and waits there."""
    is_there, fault = MOMENTS[moment]
    lake.held.clear()
    lake.released.clear()
    with lake.faulty(lambda request: fault if is_there(request) else None):
        process = PipelineProcess(tables, directory)
        await_in(lake.held.is_set, process)
    return process


@pytest.mark.timeout(6 * PATIENCE_SECONDS)
def test_drivers_are_killed_in_the_commit_window(
    spark: SparkSession, lake: ObjectStore, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    place = f"s3a://{LANDING}/tables/killed"
    tables = copying(server.url, place, str(tmp_path / "checkpoint"), spark=settings_of(lake))
    publish(client, "orders", orders(0, 400))
    for moment in range(len(MOMENTS)):
        process = _until(lake, tables, tmp_path, moment)
        process.signal(signal.SIGKILL)
        process.end()
        lake.released.set()
    assert delta(lake, f"{place}/all").to_pyarrow_table().num_rows < 400, "in the middle"
    run(spark, {name: keys for name, keys in tables.items() if name != "spark"})
    check(lake, place, 400)
    # What was written before the kills is seen by no reader. It is deleted once it is old enough.
    strays = delta(lake, f"{place}/all").vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    assert any("part-" in file for file in strays)


@pytest.mark.timeout(4 * PATIENCE_SECONDS)
@pytest.mark.parametrize("moment", [1, 4])
def test_a_paused_run_is_taken_over(
    spark: SparkSession, lake: ObjectStore, server: ServerProcess, client: Client, tmp_path: Path, moment: int
) -> None:
    """Its entry is on its way when it is paused; when it wakes up, another run has written this batch and more."""
    place = f"s3a://{LANDING}/tables/paused-{moment}"
    checkpoint = f"s3a://{LANDING}/checkpoints/paused-{moment}"
    tables = copying(server.url, place, checkpoint, spark=settings_of(lake))
    publish(client, "orders", orders(0, 200))
    process = _until(lake, tables, tmp_path, moment)
    process.signal(signal.SIGSTOP)
    run(spark, {name: keys for name, keys in tables.items() if name != "spark"})
    check(lake, place, 200)
    publish(client, "orders", orders(200, 250))
    lake.released.set()
    process.signal(signal.SIGCONT)
    code, said = process.end()
    assert code != 0, said
    run(spark, {name: keys for name, keys in tables.items() if name != "spark"})
    check(lake, place, 250)


def test_a_wrong_key(spark: SparkSession, tmp_path: Path) -> None:
    """Said by `check`, with the key of the file."""
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    tables = {
        "source": {"format": "json", "path": str(tmp_path / "rows.json"), "schema": "id BIGINT"},
        "sink": {"format": "delta", "path": f"s3a://{LANDING}/tables/refused"},
        "spark": {f"spark.hadoop.fs.s3a.bucket.{LANDING}.{name}.key": "wrong" for name in ("access", "secret")},
    }
    with pytest.raises(InvalidInput, match=r"the object store refuses it.*credentials") as refused:
        Pipeline.of(tables).check(spark)
    assert refused.value.field == "sink.path"

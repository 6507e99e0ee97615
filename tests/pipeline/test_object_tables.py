"""Delta tables on S3: each batch once, whichever request fails, whoever else writes. The server is moto's.

`tests/object_store` has the same on a server that is a program, with drivers that are killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark import Pipeline
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.frame.object_store import ObjectStore as Store
from headrace.spark.pipeline.frame.object_store import object_store
from headrace.spark.pipeline.sinks.object_table_sink import ObjectTableSinkWriter, ObjectUpsertSinkWriter
from headrace.spark.write.fingerprint import BatchId
from tests.pipeline.runs import forget_last_batch, publish, run
from tests.storage.archive.object_store import BUCKET, CREDENTIALS, ObjectStore, Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Killed(BaseException):
    """As a SIGKILL would: nothing catches it."""


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


@pytest.fixture(scope="module")
def settings(objects: ObjectStore) -> dict[str, str]:
    """With the credentials, since the Java of all tests has another environment."""
    prefix = f"spark.hadoop.fs.s3a.bucket.{BUCKET}"
    return {
        f"{prefix}.endpoint": f"127.0.0.1:{objects.port}",
        f"{prefix}.connection.ssl.enabled": "false",
        f"{prefix}.access.key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        f"{prefix}.secret.key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


@pytest.fixture(scope="module")
def here(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    """A session that finds the server."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@pytest.fixture
def table(topic: str) -> str:
    """A table that no other test has."""
    return f"s3a://{BUCKET}/tables/{topic}"


def delta(objects: ObjectStore, table: str) -> Any:
    from deltalake import DeltaTable

    store = Store(f"http://127.0.0.1:{objects.port}", "us-east-1")
    return DeltaTable(table, storage_options=store.delta_options())


def rows_of(objects: ObjectStore, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = delta(objects, table).to_pyarrow_table().select(columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def is_entry(request: Request) -> bool:
    return request.method == "PUT" and "/_delta_log/" in request.path


def test_a_stream_and_its_dead_letters(
    spark: SparkSession,
    objects: ObjectStore,
    settings: dict[str, str],
    url: str,
    client: Client,
    topic: str,
    table: str,
    tmp_path: Path,
) -> None:
    """Rows in directories of any name, a repeated batch, and files merged; `s3:` is taken as `s3a:`."""
    client.create_topic(topic)
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "id BIGINT NOT NULL, place STRING, at TIMESTAMP"},
        "sink": {
            "format": "delta", "path": table.replace("s3a:", "s3:"), "partition_by": ["place"], "compact_files": 2,
            "options": {"compression": "zstd"},
        },
        "dead_letters": {"format": "delta", "path": f"{table}-dead"},
        "run": {"checkpoint": str(tmp_path / "cp"), "report": False},
        "spark": settings,
    }  # fmt: skip
    places = ["a b/c=ü%", "", None]
    for number, place in enumerate(places):
        publish(client, topic, [{"id": number, "place": place, "at": "2026-07-01T12:00:00.123456Z"}, b"no JSON"])
    run(spark, tables)
    forget_last_batch(tmp_path / "cp")
    publish(client, topic, [{"id": 3, "place": places[0]}])
    run(spark, tables)
    found = sorted(delta(objects, table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["place"]) for row in found] == [(0, places[0]), (1, None), (2, None), (3, places[0])]
    assert found[0]["at"].isoformat() == "2026-07-01T12:00:00.123456+00:00" and found[3]["at"] is None
    assert len(rows_of(objects, f"{table}-dead", "reason")) == len(places)
    assert len(delta(objects, table).file_uris()) == 2, "merged, one in each directory"


def test_a_load_is_loaded_once(
    spark: SparkSession, objects: ObjectStore, settings: dict[str, str], table: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n{"id": 2}\n')
    tables = {
        "source": {"format": "json", "path": str(tmp_path / "rows.json"), "schema": "id BIGINT"},
        "sink": {"format": "delta", "path": table},
        "spark": settings,
    }
    ended = [run(spark, tables) for _ in range(2)]
    assert [(summary.messages, summary.is_repeated) for summary in ended] == [(2, False), (0, True)]
    assert rows_of(objects, table, "id") == [(1,), (2,)]


def writer_of(session: SparkSession, table: str, mode: str = "append") -> ObjectTableSinkWriter:
    kind = ObjectUpsertSinkWriter if mode == "upsert" else ObjectTableSinkWriter
    sink = {"keys": ["id"]} if mode == "upsert" else {}
    described = msgspec.convert({"format": "delta", "path": table, "mode": mode, **sink}, TableSink)
    writer = kind(described, "writer", is_stream=True)
    writer.prepare(rows(session, 0))
    writer.open()
    return writer


def rows(session: SparkSession, number: int) -> DataFrame:
    """A row of its own, and one that all batches have."""
    return session.sql(f"SELECT {number} AS id, {number} AS batch UNION ALL SELECT -1, {number}")


def expected(mode: str, batches: int) -> list[tuple[int, int]]:
    repeated = [(-1, number) for number in range(batches)]
    return (repeated[-1:] if mode == "upsert" else repeated) + [(number, number) for number in range(batches)]


def write(writer: ObjectTableSinkWriter, session: SparkSession, number: int, fingerprint: int = 7) -> None:
    writer.write(writer.prepare(rows(session, number)), BatchId(number, fingerprint))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_requests_fail(here: SparkSession, objects: ObjectStore, table: str, mode: str) -> None:
    """The answer to a commit is lost; or requests of all kinds fail once, or are slow."""
    writer = writer_of(here, table, mode)
    write(writer, here, 0)

    def lost(request: Request) -> str | None:
        return "lost" if is_entry(request) and not objects.hits else None

    with objects.faulty(lost):
        write(writer, here, 1)
        assert len(objects.hits) == 1
    seen: set[Request] = set()

    def once(request: Request) -> str | None:
        is_new = request not in seen
        seen.add(request)
        return "500" if is_new else "slow"

    with objects.faulty(once):
        write(writer, here, 2)
        assert any(map(is_entry, objects.hits))
    assert rows_of(objects, table, "id", "batch") == expected(mode, 3)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_kill_beside_the_commit(
    here: SparkSession, objects: ObjectStore, table: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before it is a stray: no reader sees it, and VACUUM finds it."""
    writer = writer_of(here, table, mode)
    write(writer, here, 0)
    commit = ObjectTableSinkWriter.commit
    for number, is_committed in enumerate((False, True), start=1):

        def killed(self: ObjectTableSinkWriter, *batch: Any, is_committed: bool = is_committed) -> None:
            if is_committed:
                commit(self, *batch)
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(ObjectTableSinkWriter, "commit", killed)
            write(writer, here, number)
        assert rows_of(objects, table, "id", "batch") == expected(mode, number + is_committed)
        version = delta(objects, table).version()
        write(writer_of(here, table, mode), here, number)
        assert rows_of(objects, table, "id", "batch") == expected(mode, number + 1)
        assert delta(objects, table).version() == version + (not is_committed)
    known = {file.rpartition("/")[2] for file in delta(objects, table).file_uris()}
    strays = delta(objects, table).vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    prefix = "part-writer-0000000001-" if mode == "append" else "stage-writer-0000000001-"
    assert [file for file in strays if file.startswith(prefix) and file not in known]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_another_run_writes_the_batch_in_between(
    here: SparkSession, objects: ObjectStore, table: str, mode: str
) -> None:
    """It read the log before the other one wrote its entry, and writes its own after that."""
    one, other = writer_of(here, table, mode), writer_of(here, table, mode)

    def meanwhile(number: int) -> Callable[[Request], str | None]:
        def look(request: Request) -> str | None:
            if not is_entry(request) or objects.hits:
                return None
            objects.hits.append(request)
            write(other, here, number)
            return None

        return look

    for number in (0, 1):
        # The table does not exist before the first.
        with objects.faulty(meanwhile(number)):
            write(one, here, number)
        assert rows_of(objects, table, "id", "batch") == expected(mode, number + 1)
    with objects.faulty(meanwhile(2)), pytest.raises(InvalidInput, match="written by another run"):
        write(one, here, 2, fingerprint=8)
    with pytest.raises(InvalidInput, match="the checkpoint is older than the table"):
        write(one, here, 1)
    assert rows_of(objects, table, "id", "batch") == expected(mode, 3)


def test_a_used_sink_id(
    spark: SparkSession,
    settings: dict[str, str],
    here: SparkSession,
    url: str,
    client: Client,
    topic: str,
    table: str,
    tmp_path: Path,
) -> None:
    client.create_topic(topic)
    write(writer_of(here, table), here, 4)
    tables = {
        "server": {"url": url},
        "source": {"topic": topic},
        "steps": [{"name": "rows", "sql": "SELECT int(partition) AS id, int(partition) AS batch FROM source"}],
        "sink": {"format": "delta", "path": table, "sink_id": "writer"},
        "run": {"checkpoint": str(tmp_path / "cp"), "report": False},
        "spark": settings,
    }
    with pytest.raises(InvalidInput, match="up to batch 4"):
        run(spark, tables)


def test_settings_that_are_wrong(spark: SparkSession, settings: dict[str, str], tmp_path: Path) -> None:
    """Said by `check`, with the key."""
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    source = {"format": "json", "path": str(tmp_path / "rows.json"), "schema": "id BIGINT"}
    elsewhere = {name.replace(BUCKET, "elsewhere"): value for name, value in settings.items()}
    nobody = elsewhere | {"spark.hadoop.fs.s3a.bucket.elsewhere.endpoint": "http://127.0.0.1:1"}
    for given, kind, told in (
        (elsewhere, InvalidInput, r"sink.path.*NoSuchBucket"),
        (nobody, StoreUnavailable, r"sink.path does not answer.*fs.s3a.endpoint.*refused"),
    ):
        tables = {"source": source, "sink": {"format": "delta", "path": "s3://elsewhere/x"}, "spark": given}
        with pytest.raises(kind, match=told):
            Pipeline.of(tables).check(spark)


def test_the_settings_of_a_store(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark.newSession()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert object_store(session, "/tables/x") is None
    found = object_store(session, "s3a://orders/x")
    assert found is not None and (found.endpoint, found.region) == (None, "eu-west-1")
    session.conf.set("spark.hadoop.fs.s3a.endpoint", "store.example:9000")
    session.conf.set("spark.hadoop.fs.s3a.bucket.orders.secret.key", "hidden")
    found = object_store(session, "s3a://orders/x")
    assert found is not None and found.endpoint == "https://store.example:9000" and found.secret_key == "hidden"
    assert "hidden" not in repr(found)

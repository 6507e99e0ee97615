"""`headrace serve` is killed while it writes to the archive: every message is archived once, and nothing is damaged.

The kill comes when a file is being written: when its unfinished name appears, or in the middle of an upload. While an
upload hangs, publishers, readers and operators notice nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
from headrace.client.client import Client
from headrace.core.reports.store_check import Finding, StoreReport
from headrace.storage.archive.check import check_archive
from headrace.storage.archive.files import ArchiveFiles, open_files
from headrace.storage.catalog import Catalog
from headrace.storage.open import open_catalog
from tests.broker.background import eventually
from tests.postgres_server import PostgresServer
from tests.server_process import PATIENCE_SECONDS, ServerProcess
from tests.storage.archive.object_store import CREDENTIALS, ObjectStore

MESSAGES = 20_000
# A server that was killed had the lease.
QUICK = (
    "--set",
    "archive.check_seconds=0.05",
    "--set",
    "archive.stray_seconds=0",
    "--fixed",
    "archive.lease_seconds=1",
)


def publish(client: Client, first: int) -> None:
    values = pa.array([b"%08d" % number for number in range(first, first + MESSAGES)], pa.binary())
    with client.producer("orders") as producer:
        producer.send_batch(pa.record_batch({"value": values}))


def await_archived(client: Client, messages: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(client.archive("orders").complete.values()) < messages:
        assert time.monotonic() < deadline, "everything is archived"
        time.sleep(0.05)


def check(client: Client, store: str, url: str, messages: int, server: ServerProcess) -> None:
    await_archived(client, messages)
    snapshot, files = client.archive("orders"), open_files(url)
    tables = [pq.ParquetFile(files.open(file.path)).read(["partition", "offset", "value"]) for file in snapshot.files]
    rows = pa.concat_tables(tables)
    assert sorted(rows["value"].to_pylist()) == [b"%08d" % number for number in range(messages)]
    assert len(set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))) == messages
    client.close()
    catalog = open_catalog(store)
    try:
        eventually(lambda: findings(catalog, files) == [])
    finally:
        server.stop()
        catalog.close()


def findings(catalog: Catalog, files: ArchiveFiles) -> list[Finding]:
    """What `headrace doctor` finds: strays of a killed server until they are swept, and nothing else."""
    report = StoreReport()
    check_archive(catalog, files, report)
    assert [finding for finding in report.findings if finding.kind == "damage"] == []
    return report.findings


@pytest.mark.parametrize("engine", ["disk", "postgres"])
def test_kills_while_files_are_written_leave_no_gap_and_nothing_twice(
    engine: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    store = postgres.fresh_url() if engine == "postgres" else f"file:{tmp_path / 'store'}"
    url = str(tmp_path / "archive")
    server = ServerProcess(store, "--set", f"archive.url={url}", *QUICK)
    try:
        for number in range(3):
            client = headrace.connect(server.url)
            if number == 0:
                client.create_topic("orders", partitions=4, archive="on", archive_after_seconds=0)
            publish(client, number * MESSAGES)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not list(Path(url).rglob("*.tmp")):
                assert time.monotonic() < deadline, "a file is being written"
            client.close()
            server.kill()
            server.start()
        check(headrace.connect(server.url), store, url, 3 * MESSAGES, server)
    finally:
        server.close()


def test_an_upload_that_hangs_blocks_nobody(tmp_path: Path) -> None:
    store = f"file:{tmp_path / 'store'}"
    with ObjectStore() as objects:
        server = ServerProcess(store, "--set", f"archive.url={objects.url}", *QUICK, variables=CREDENTIALS)
        try:
            client = headrace.connect(server.url)
            client.create_topic("orders", partitions=4, archive="on", archive_after_seconds=0)
            with objects.faulty(lambda request: "hold" if request.sends_data else None):
                publish(client, 0)
                assert objects.held.wait(PATIENCE_SECONDS), "the upload began"
                publish(client, MESSAGES)
                assert client.table("orders").num_rows == 2 * MESSAGES
                client.create_topic("others", archive="on")
                client.alter_topic("orders", retention_seconds=1000)
                client.delete_topic("others")
                assert sum(client.archive("orders").complete.values()) == 0, "the upload hangs"
            objects.released.set()
            check(client, store, objects.url, 2 * MESSAGES, server)
        finally:
            server.close()


def test_a_kill_in_the_middle_of_an_upload_loses_nothing(tmp_path: Path) -> None:
    store = f"file:{tmp_path / 'store'}"
    with ObjectStore() as objects:
        arguments = "--set", f"archive.url={objects.url}", *QUICK
        server = ServerProcess(store, *arguments, variables=CREDENTIALS)
        try:
            client = headrace.connect(server.url)
            client.create_topic("orders", partitions=4, archive="on", archive_after_seconds=0)
            with objects.faulty(lambda request: "hold" if request.sends_data else None):
                publish(client, 0)
                assert objects.held.wait(PATIENCE_SECONDS), "the upload began"
                client.close()
                server.kill()
            objects.released.set()
            server.start()
            client = headrace.connect(server.url)
            publish(client, MESSAGES)
            check(client, store, objects.url, 2 * MESSAGES, server)
        finally:
            server.close()

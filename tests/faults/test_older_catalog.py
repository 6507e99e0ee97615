"""The catalog of a server is replaced by an older copy, as when only a part of a volume was restored.

The archive has messages that this catalog does not list and the log no longer has. The server refuses to start, says
what to do, and has everything again with the right catalog.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import headrace
from headrace.client.client import Client
from tests.server_process import PATIENCE_SECONDS, ROOT, ServerProcess

STORE_OPTIONS = "segment_bytes=20000&room_bytes=4096"
SETTINGS = ("archive.check_seconds=0.05", "archive.stray_seconds=0")
FIXED = ("--fixed", "broker.retention_check_seconds=0.05")


def publish_until_dropped(client: Client, store: Path, tag: str) -> None:
    """Publish, and wait until the log has dropped the oldest of what was published now."""
    [before] = sorted((store / "topics" / "000000001").glob("*.log"))[-1:]
    with client.producer("orders") as producer:
        for number in range(40):
            producer.send(f"{tag}-{number}-{'x' * 1000}".encode()).result()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while before.exists():
        assert time.monotonic() < deadline, "the segment is dropped once it is archived"
        time.sleep(0.02)


def values(client: Client) -> list[bytes]:
    table = client.table("orders")
    return sorted(table["value"].to_pylist())


def test_a_server_refuses_an_older_catalog_and_continues_with_the_newer_one(tmp_path: Path) -> None:
    directory, archive = tmp_path / "store", tmp_path / "archive"
    arguments = [part for setting in (f"archive.url={archive}", *SETTINGS) for part in ("--set", setting)]
    server = ServerProcess(f"file:{directory}?{STORE_OPTIONS}", *arguments, *FIXED)
    try:
        with headrace.connect(server.url) as client:
            client.create_topic("orders", archive="on", archive_after_seconds=0, local_retention_bytes=20000)
            publish_until_dropped(client, directory, "first")
        server.stop()
        shutil.copy(directory / "catalog.sqlite", tmp_path / "older.sqlite")
        server.start()
        with headrace.connect(server.url) as client:
            publish_until_dropped(client, directory, "second")
            everything = values(client)
        server.stop()
        (directory / "catalog.sqlite").rename(tmp_path / "newer.sqlite")
        shutil.copy(tmp_path / "older.sqlite", directory / "catalog.sqlite")

        command = [sys.executable, "-m", "headrace"]
        serve = [*command, "serve", "--store", f"file:{directory}", "--http", "127.0.0.1:0", "--flight", "off"]
        refused = subprocess.run(serve, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS)
        assert refused.returncode != 0 and "ready" not in refused.stdout
        assert "the catalog is older than the log; restore the newer one" in refused.stderr
        examined = subprocess.run([*command, "doctor", str(directory)], capture_output=True, text=True, cwd=ROOT)
        assert examined.returncode == 1 and "the catalog is older than the log" in " ".join(examined.stdout.split())

        shutil.copy(tmp_path / "newer.sqlite", directory / "catalog.sqlite")
        server.start()
        with headrace.connect(server.url) as client:
            assert values(client) == everything and len(everything) == 80
    finally:
        server.close()

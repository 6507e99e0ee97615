"""A real server archives to a real S3 server while requests fail or one of the two is killed.

At the end every message was archived and dropped from the log, is read once through the broker and once as a table,
and `headrace doctor` finds nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace
from headrace.client.client import Client
from headrace.storage.archive.files import open_files
from headrace.tables.sql import run_sql
from tests.object_store.gateway import Gateway
from tests.server_process import ServerProcess
from tests.storage.archive.object_store import CREDENTIALS, ObjectStore, Request

pytestmark = pytest.mark.object_store

# An upload of such a file has several parts.
MESSAGES, VALUE_BYTES = 150_000, 200
PATIENCE_SECONDS = 240.0
SETTINGS = (
    "archive.check_seconds=0.1",
    "archive.stray_seconds=0",
)
FIXED = ("--fixed", "broker.retention_check_seconds=0.2")


class Site:
    """A server with a topic that is archived, and what was published to it."""

    def __init__(self, directory: Path, objects: ObjectStore) -> None:
        self.directory, self.objects = directory / "store", objects
        arguments = [part for each in (f"archive.url={objects.url}", *SETTINGS) for part in ("--set", each)]
        store = f"file:{self.directory}?segment_bytes={4 << 20}"
        self.server = ServerProcess(store, *arguments, *FIXED, variables=CREDENTIALS)
        self.published = 0
        with self.client() as client:
            client.create_topic(
                "orders", partitions=2, archive="on", archive_after_seconds=0, local_retention_seconds=1
            )

    def client(self) -> Client:
        return headrace.connect(self.server.url, timeout_seconds=PATIENCE_SECONDS)

    def publish(self) -> None:
        """Messages that begin with their number and cannot be compressed."""
        noise = np.random.default_rng(self.published).bytes(MESSAGES * VALUE_BYTES)
        values = [
            b"%08d" % (self.published + place) + noise[place * VALUE_BYTES : (place + 1) * VALUE_BYTES]
            for place in range(MESSAGES)
        ]
        with self.client() as client, client.producer("orders") as producer:
            for first in range(0, MESSAGES, 10_000):
                batch = pa.record_batch({"value": pa.array(values[first : first + 10_000], pa.binary())})
                producer.send_batch(batch)
        self.published += MESSAGES

    def check(self) -> None:
        """Everything is archived, and read once whichever way; nothing else is left on the archive."""
        with self.client() as client:
            _await(lambda: sum(client.archive("orders").complete.values()) == self.published, "all is archived")
            _await(lambda: len(list(self.directory.glob("topics/*/*.log"))) <= 1, "the log has dropped what it can")
            _await(lambda: not self._has_strays(client), "strays are swept")
            numbers = [
                int(value[:8])
                for partition, (start, end) in client.offsets("orders").items()
                for batch in client.scan("orders", partition, start, end)
                for value in batch["value"].to_pylist()
            ]
            assert sorted(numbers) == list(range(self.published)), "through the broker"
            query = "SELECT count(*) AS n, count(DISTINCT left(value::VARCHAR, 8)) AS v FROM orders"
            assert run_sql(client, query).to_pylist() == [{"n": self.published, "v": self.published}], "as a table"
        self.server.stop()
        command = ["doctor", str(self.directory), "--archive", self.objects.url, "--json"]
        done = subprocess.run([sys.executable, "-m", "headrace", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["report"]["findings"] == []
        self.server.start()

    def _has_strays(self, client: Client) -> bool:
        listed, files = {file.path for file in client.archive("orders").files}, open_files(self.objects.url)
        directory = next(iter(listed)).rpartition("/")[0]
        return {f"{directory}/{name}" for name in files.list(directory)} != listed


def _await(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def site(tmp_path: Path, objects: ObjectStore) -> Iterator[Site]:
    made = Site(tmp_path, objects)
    yield made
    made.server.close()


def is_second_part(request: Request) -> bool:
    return request.sends_data and "partNumber=2" in request.path


@pytest.mark.parametrize("fault", ["500", "slow", "lost"])
@pytest.mark.parametrize("which", ["sends_data", "completes_upload"])
def test_requests_fail(fault: str, which: str, site: Site, objects: ObjectStore) -> None:
    # Often enough that the library gives up.
    def fail(request: Request) -> str | None:
        return fault if getattr(request, which) and len(objects.hits) < 12 else None

    with objects.faulty(fail):
        site.publish()
        _await(lambda: bool(objects.hits), "an upload began")
        site.publish()
        site.check()


def test_the_server_is_killed_in_the_middle_of_an_upload(site: Site, objects: ObjectStore) -> None:
    with objects.faulty(lambda request: "hold" if is_second_part(request) else None):
        site.publish()
        assert objects.held.wait(PATIENCE_SECONDS), "the second part is being sent"
        site.server.kill()
    objects.released.set()
    site.server.start()
    site.publish()
    site.check()


def test_the_object_store_is_killed_in_the_middle_of_an_upload(
    site: Site, objects: ObjectStore, gateway: Gateway
) -> None:
    with objects.faulty(lambda request: "hold" if is_second_part(request) else None):
        site.publish()
        assert objects.held.wait(PATIENCE_SECONDS), "the second part is being sent"
        gateway.kill()
    objects.released.set()
    site.publish()
    gateway.start()
    site.check()

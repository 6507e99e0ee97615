"""Spark Connect: the source knows nothing of Spark's Java, so it works through a Connect server as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.client import Client
from tests.spark.driver import ROOT
from tests.spark.topics import contents_of, numbers, publish, values_of

PATIENCE_SECONDS = 600.0
# Longer than any other test may take.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60.0)


def test_a_connect_client_reads_writes_and_streams(client: Client, url: str, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-batch", f"{topic}-stream", f"{topic}-json"):
        client.create_topic(name, partitions=2)
    publish(client, topic, numbers(0, 20), [b"key-%d" % number for number in range(20)])
    bad = [b"no JSON", b"[]", b'{"id": "text"}']
    publish(client, f"{topic}-json", [b'{"id":%d}' % number for number in range(20)] + bad)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", url, topic, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    values = sorted(str(number) for number in range(20))
    batches = [[23, 3], [23, 3], [23, 3], [20, 0]]
    assert told == {"is_connect": True, "values": values, "placed": True, "piped": 20, "batches": batches}
    assert set(values_of(client, f"{topic}-even")) == {b'{"id":%d}' % number for number in range(0, 20, 2)}
    assert sorted(values_of(client, f"{topic}-dead")) == sorted(bad * 3)
    assert len(values_of(client, f"{topic}-even")) == 10
    assert pq.read_table(tmp_path / "even").num_rows == 10 and pq.read_table(tmp_path / "raw").num_rows == 20
    contents = contents_of(client, topic)
    for copy in (f"{topic}-batch", f"{topic}-stream", f"{topic}-piped"):
        found = contents_of(client, copy)
        assert {partition: sorted(rows) for partition, rows in found.items()} == {
            partition: sorted(rows) for partition, rows in contents.items()
        }

"""Messages that were deleted do not come back after the server was killed, or from a backup."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.core.errors import OffsetOutOfRange
from headrace.storage.disk.backup import back_up
from tests.server_process import ServerProcess


def test_a_start_offset_survives_a_kill_and_a_backup(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path}/store")
    try:
        with headrace.connect(server.url) as client:
            client.create_topic("orders", partitions=2)
            rows = pa.record_batch({"value": [b"a", b"b", b"c"], "partition": pa.array([0, 0, 1], pa.int32())})
            with client.producer("orders") as producer:
                producer.send_batch(rows)
            assert client.delete_messages("orders", {0: 1, 1: 1}) == {0: 1, 1: 1}
        server.kill()
        back_up(tmp_path / "store", tmp_path / "copy")
        server.start()
        check(server.url)
    finally:
        server.close()
    restored = ServerProcess(f"file:{tmp_path}/copy")
    try:
        check(restored.url)
    finally:
        restored.close()


def check(url: str) -> None:
    with headrace.connect(url) as client:
        assert client.offsets("orders") == {0: (1, 2), 1: (1, 1)}
        assert client.read("orders", partition=0, offset=1).column("value").to_pylist() == [b"b"]
        with pytest.raises(OffsetOutOfRange):
            client.read("orders", partition=0, offset=0)

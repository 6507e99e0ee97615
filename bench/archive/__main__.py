"""Archive a topic on the disk engine, and read it back from the archive.

    python -m bench.archive [--messages 2000000] [--partitions 8] [--schema json|avro]

Prints messages per second of CPU of this process for each step, and the largest anonymous memory it had beyond what it
had before.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.settings import ArchiveSettings

BATCH = 50_000
_TYPES = {"order": "integer", "user": "integer", "cents": "integer", "note": "string"}
_AVRO = {"integer": "long"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "json": {
        "type": "object",
        "required": ["order"],
        "properties": {name: {"type": kind} for name, kind in _TYPES.items()},
    },
    "avro": {
        "type": "record",
        "name": "order",
        "fields": [{"name": name, "type": _AVRO.get(kind, kind)} for name, kind in _TYPES.items()],
    },
}


def anonymous_bytes() -> int:
    """The memory of this process that is not mapped from files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


class Peak:
    """The largest memory while something runs."""

    def __init__(self) -> None:
        self._before = anonymous_bytes()
        self._most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._most = max(self._most, anonymous_bytes() - self._before)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        return self._most / 1e6


def avro(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same orders in Avro's encoding."""
    import fastavro

    schema, values = fastavro.parse_schema(SCHEMAS["avro"]), []
    for value in batch.column("value").to_pylist():
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, json.loads(value))
        values.append(target.getvalue())
    return batch.set_column(0, "value", pa.array(values, pa.binary()))


def batch_of(first: int, chance: np.random.Generator) -> pa.RecordBatch:
    """Orders of about 100 bytes with keys."""
    users, amounts = chance.integers(0, 100_000, BATCH).tolist(), chance.integers(0, 100_000, BATCH).tolist()
    notes = chance.bytes(16 * BATCH).hex()
    rows = zip(range(first, first + BATCH), users, amounts, strict=True)
    values = [
        b'{"order": %d, "user": %d, "cents": %d, "note": "%s"}'
        % (number, user, cents, notes[32 * place : 32 * place + 32].encode())
        for place, (number, user, cents) in enumerate(rows)
    ]
    keys = [b"user-%d" % user for user in users]
    return pa.record_batch({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--partitions", type=int, default=8)
    options.add_argument("--schema", choices=[*SCHEMAS], help="give the topic a schema of its values")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), given.messages, given.partitions, given.schema)


def run(directory: Path, messages: int, partitions: int, schema: str | None = None) -> None:
    """Publish, archive, read back."""
    settings = ArchiveSettings(url=str(directory / "archive"), check_seconds=3600)
    chance = np.random.default_rng(1)
    with Broker.open(f"file:{directory / 'store'}?durability=os", archive=settings) as broker:
        broker.create_topic("orders", partitions, archive="on", archive_after_seconds=0, local_retention_seconds=1)
        broker.alter_topic("orders", value_schema=SCHEMAS.get(schema or ""))
        for first in range(0, messages, BATCH):
            batch = batch_of(first, chance)
            broker.publish("orders", avro(batch) if schema == "avro" else batch)
        with Peak() as peak:
            began = time.process_time()
            broker.archiving.archive()
            seconds = time.process_time() - began
        files = broker.archive("orders").files
        size = sum(file.bytes for file in files)
        print(f"archive: {messages / seconds / 1e6:.2f} M messages/s of CPU, {peak.megabytes:.0f} MB of memory,")
        print(f"         {len(files)} files, {size / 1e6:.0f} MB, {size / messages:.1f} bytes per message")
        time.sleep(1.1)
        broker.maintenance.run_all()
        offsets = broker.offsets("orders")
        with Peak() as peak:
            began, read = time.process_time(), 0
            for partition, (start, end) in offsets.items():
                while start < end:
                    batch = broker.fetch("orders", partition, start, max_messages=100_000)
                    start, read = start + batch.num_rows, read + batch.num_rows
            seconds = time.process_time() - began
        assert read == messages
        print(f"read:    {messages / seconds / 1e6:.2f} M messages/s of CPU, {peak.megabytes:.0f} MB of memory")


if __name__ == "__main__":
    main()

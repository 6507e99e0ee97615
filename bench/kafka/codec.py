"""The record codec beside aiokafka's compiled one, which is driven record by record: `python -m bench.kafka.codec`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from bench.report import Report
from headrace.core.messages import READ_SCHEMA, pad
from headrace.protocols.kafka.records.decode import decode
from headrace.protocols.kafka.records.encode import encode

RECORDS = 10_000
ROUNDS = 20
BYTES_MAX = 64 << 20
TARGET = 3_000_000


def built(has_headers: bool) -> bytes:
    """A batch as a client makes it: values of 100 bytes, keys of about 8."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    headers = [("trace", b"0123456789abcdef")] if has_headers else []
    for number in range(RECORDS):
        builder.append(number, 1_790_000_000_000 + number // 10, b"user-%d" % (number % 1000), b"v" * 100, headers)
    return bytes(builder.build())


def rate(work: Callable[[], Any]) -> float:
    """Records in a second of a core, in the best of some rounds: others use this machine too."""
    work()
    best = min(_seconds(work) for _ in range(ROUNDS))
    return RECORDS / best


def _seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def read_batch(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The records as the broker gives them to readers."""
    rows = columns.num_rows
    columns = columns.append_column("partition", pa.array(np.zeros(rows, np.int32)))
    columns = columns.append_column("offset", pa.array(np.arange(rows)))
    return pad(columns.append_column("timestamp", columns.column("created_at")), READ_SCHEMA)


def compare(report: Report) -> None:
    """Both ways, without and with headers."""
    for has_headers in (False, True):
        data = built(has_headers)
        batch = read_batch(decode(memoryview(data), BYTES_MAX).columns)
        what, least = (" with a header", None) if has_headers else ("", TARGET)
        ours = rate(partial(decode, memoryview(data), BYTES_MAX))
        report.line(f"decode records{what}", ours, "records/s", least=least)
        report.note(f"of aiokafka, record by record: {ours / rate(partial(_decoded_by_client, data)):.2f}")
        ours = rate(partial(encode, batch))
        report.line(f"encode records{what}", ours, "records/s", least=least)
        report.note(f"of aiokafka, record by record: {ours / rate(partial(built, has_headers)):.2f}")


def _decoded_by_client(data: bytes) -> list[Any]:
    return list(DefaultRecordBatch(data))


if __name__ == "__main__":
    lines = Report("record batches of Kafka to Arrow columns and back, one thread")
    lines.begin()
    compare(lines)
    lines.end()

"""Staging: rows stored in the broker and published later in one commit; the basis of exactly-once sinks."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.client.producer.batch import fitted
from headrace.client.transport.transport import Transport
from headrace.core.errors import InvalidInput, ServerFailed
from headrace.core.reports.descriptions import Staged
from headrace.wire.tickets import Stage


def stage_batches(transport: Transport, topic: str, stage: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Append batches of one schema to a stage; returns its number of rows.

    It is not retried when the connection breaks, because rows could be staged twice: use a new stage instead.
    """
    left = iter(batches)
    first = next(left, None)
    if first is None:
        raise InvalidInput("batches", "none", "give at least one batch")
    stream = transport.upload(Stage(topic, stage), first.schema)
    stream.write(first)
    for batch in left:
        same = fitted(batch, first.schema)
        if same is None:
            stream.finish()
            raise InvalidInput("batch", f"with columns {batch.schema.names}"[:100], "all must have the same columns")
        stream.write(same)
    stream.finish()
    rows = None
    while (answer := stream.read()) is not None:
        rows = int(answer.to_pybytes())
    if rows is None:
        raise ServerFailed("it did not return the number of staged rows")
    return Staged(stage, rows)

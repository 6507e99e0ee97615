"""Staging: rows put aside in the broker, and published later in one commit; what an exactly-once sink stands on."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.client.producer.batch import fitted
from headrace.client.transport.transport import Transport
from headrace.core.descriptions import Staged
from headrace.core.errors import InvalidInput, ServerFailed
from headrace.wire.tickets import Stage


def stage_batches(transport: Transport, topic: str, stage: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Append batches of one schema to a stage; the rows it has then.

    It is not repeated when the connection breaks, since rows would be there twice: stage anew under another name.
    """
    left = iter(batches)
    first = next(left, None)
    if first is None:
        raise InvalidInput("batches", "none", "there must be at least one")
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
        raise ServerFailed("it did not say how many rows it staged")
    return Staged(stage, rows)

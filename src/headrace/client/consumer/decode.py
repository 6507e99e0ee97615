"""Batches that were read, with their values decompressed."""

from __future__ import annotations

import pyarrow as pa

from headrace.core.codecs import columns as codecs
from headrace.core.messages import READ_SCHEMA

_VALUE = READ_SCHEMA.get_field_index("value")
_CODEC = READ_SCHEMA.get_field_index("codec")


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain values and no codec; one that has no codec is given back as it is."""
    if not is_packed(batch):
        return batch
    columns = list(batch.columns)
    columns[_VALUE] = codecs.decode(columns[_VALUE], columns[_CODEC])
    columns[_CODEC] = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_packed(batch: pa.RecordBatch) -> bool:
    """Whether any value names a codec."""
    named = batch.column(_CODEC)
    return bool(named.null_count < len(named))

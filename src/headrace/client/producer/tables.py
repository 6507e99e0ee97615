"""What `send_batch` takes: Arrow batches and tables, and whatever gives its data as Arrow (polars, DuckDB, pandas).

The Arrow PyCapsule interface is how libraries hand data over without a copy: `__arrow_c_stream__` for data in pieces,
`__arrow_c_array__` for one piece. Everything becomes one record batch, since it is published in one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from headrace.client.serializers import serialized_column
from headrace.core.errors import InvalidInput


class ArrowStream(Protocol):
    """Data in pieces, such as a DataFrame."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """Data in one piece."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object: ...


ArrowData: TypeAlias = pa.RecordBatch | pa.Table | ArrowStream | ArrowArray


def one_batch(data: ArrowData) -> pa.RecordBatch:
    """All rows of the data as one batch, without dictionaries, which are not sent."""
    batch = _as_batch(data)
    kinds = batch.schema.types
    if not any(map(pa.types.is_dictionary, kinds)):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(kind) else column
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_batch(data: ArrowData) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    try:
        if isinstance(data, pa.Table):
            table = data
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(data).read_all()
        elif hasattr(data, "__arrow_c_array__"):
            return pa.record_batch(data)
        else:
            rule = "it must be a pyarrow RecordBatch or Table, or a DataFrame that speaks Arrow (__arrow_c_stream__)"
            raise InvalidInput("batch", f"a {type(data).__name__}", rule)
        batches = table.combine_chunks().to_batches()
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInput("batch", f"a {type(data).__name__}", f"it cannot be read as Arrow: {error}") from None
    if len(batches) == 1:
        return batches[0]
    # No rows, or more bytes in a column than one piece holds.
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], table.schema)


def serialized_batch(
    batch: pa.RecordBatch,
    serialize: Callable[[Any], bytes] | None,
    serialize_key: Callable[[Any], bytes] | None,
) -> pa.RecordBatch:
    """The batch with values and keys as bytes."""
    for name, function in (("value", serialize), ("key", serialize_key)):
        place = batch.schema.get_field_index(name)
        if function is not None and place >= 0:
            batch = batch.set_column(place, name, serialized_column(batch.column(place), function))
    return batch

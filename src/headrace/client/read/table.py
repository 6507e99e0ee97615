"""A topic, or a range of it, as one Arrow table: for a notebook, a report, a job that needs no group.

Partition by partition, each in the order of its offsets, up to the end that is known when reading begins: what is
written meanwhile is not in the table. All of it must fit in memory. A gap of lost messages raises `OffsetOutOfRange`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from headrace.client.read.decode import Broken, Decoder, Packed, Piece
from headrace.core.errors import InvalidInput, again
from headrace.core.messages import READ_SCHEMA

Scan = Callable[[int, int, int, list[str] | None], Iterator[pa.RecordBatch]]

# What a decoder needs to know of a message.
_DECODED_BY: Final = ("value", "codec", "partition", "offset")


def table_of(
    scan: Scan,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    columns: Iterable[str] | None,
    decoder: Decoder | None,
) -> pa.Table:
    """The messages of some partitions between two offsets of each."""
    wanted = _wanted(columns)
    read = wanted
    if wanted is not None and decoder is not None and "value" in wanted:
        read = [*wanted, *(name for name in _DECODED_BY if name not in wanted)]
    batches: list[pa.RecordBatch] = []
    for partition in sorted(starts):
        for batch in scan(partition, starts[partition], ends[partition], read):
            is_decoded = decoder is not None and (read is None or "value" in read)
            batches += _decoded(decoder, batch) if decoder is not None and is_decoded else [batch]
    schema = READ_SCHEMA if wanted is None else pa.schema([READ_SCHEMA.field(name) for name in wanted])
    return pa.Table.from_batches([batch.select(schema.names) for batch in batches], schema)


def _wanted(columns: Iterable[str] | None) -> list[str] | None:
    if columns is None:
        return None
    wanted = list(columns)
    for name in wanted:
        if name not in READ_SCHEMA.names:
            raise InvalidInput("columns", repr(name)[:100], f"known columns are {', '.join(READ_SCHEMA.names)}")
    return wanted


def _decoded(decoder: Decoder, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch with its values decoded, in as many pieces as that takes."""
    batches: list[pa.RecordBatch] = []
    left: list[Piece] = [Packed(batch)]
    while left:
        piece = left.pop(0)
        if isinstance(piece, Packed):
            left = [*decoder.pieces(piece.batch), *left]
        elif isinstance(piece, Broken):
            raise again(piece.error)
        elif isinstance(piece, pa.RecordBatch):
            batches.append(piece)
    return batches

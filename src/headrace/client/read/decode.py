"""Batches that were read, with their values decompressed, and what becomes of values that cannot be.

A value may not fit the codec that its message names: it was written so by a broken producer, or to do harm. Such a
message harms nobody else. `Decoder.pieces` divides a batch into what can be given out as it is, and what has to be met
at its place:

    RecordBatch     plain values, no codec; with `raw`, undecodable ones as they are stored, with their codec
    Passed          messages that were skipped: the positions behind them
    Broken          an error, raised each time it is met; what came before was given out
    Packed          the rest of a batch that would take too much memory at once, to be decoded later

The codec of a value that was decoded is null, so a codec in a decoded batch says that its value is as it was stored.
Whole columns are decoded at once; rows are looked at one by one only around those that fail. Pure, safe for threads.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.client.consumer.progress import positions_behind
from headrace.core.codecs import columns as codecs
from headrace.core.errors import HeadraceError, InvalidInput, InvalidMessage, Undecodable
from headrace.core.limits import DECODED_BATCH_BYTES_MAX
from headrace.core.lists import booleans, masked, plain_values

logger = logging.getLogger(__name__)

OnUndecodable = Literal["raise", "raw", "skip"]

_VALUE: Final = "value"
_CODEC: Final = "codec"


@dataclass(frozen=True, slots=True)
class Passed:
    """Messages that were skipped: how many, and the positions behind them."""

    count: int
    positions: dict[int, int]


@dataclass(frozen=True, slots=True)
class Broken:
    """A row of the batch that cannot be given out, and why."""

    error: HeadraceError
    row: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The rest of a batch, as it was read."""

    batch: pa.RecordBatch


Piece: TypeAlias = pa.RecordBatch | Passed | Broken | Packed


def check_on_undecodable(value: str, field: str = "on_undecodable") -> OnUndecodable:
    """One of the three choices."""
    if value not in get_args(OnUndecodable):
        raise InvalidInput(field, repr(value)[:100], "it must be 'raise', 'raw' or 'skip'")
    return value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Decoder:
    """How the values of a topic are decoded, and what becomes of those that cannot be.

    Batches need the columns value, codec, partition and offset; what else they have stays as it is.

    on_undecodable: `raise` an error that names the message, give the value `raw` as it is stored, or `skip` it.
    """

    topic: str
    on_undecodable: OnUndecodable = "raise"
    batch_bytes_max: int = DECODED_BATCH_BYTES_MAX

    def __post_init__(self) -> None:
        check_on_undecodable(self.on_undecodable)

    def pieces(self, batch: pa.RecordBatch) -> list[Piece]:
        """A batch in pieces, in order; a batch without codecs, and one without faults, is one piece."""
        if not is_packed(batch):
            return [batch]
        values, named = batch.column(_VALUE), batch.column(_CODEC)
        try:
            known = codecs.decode_known(
                values, named, column_bytes_max=self.batch_bytes_max, until_fault=self.on_undecodable == "raise"
            )
        except InvalidInput as error:
            return [Broken(error, 0)]
        head = batch.slice(0, known.rows)
        if not known.faults:
            pieces: list[Piece] = [_with(head, known.values, pa.nulls(known.rows, pa.string()))]
        elif self.on_undecodable == "raise":
            plain = _with(head, known.values, pa.nulls(known.rows, pa.string()))
            broken = Broken(self._error(batch, known.faults[0]), known.rows)
            return [plain, broken] if known.rows else [broken]
        elif self.on_undecodable == "raw":
            pieces = [_with(head, known.values, _codecs_at(named.slice(0, known.rows), known.faults))]
        else:
            self._report(batch, known.faults)
            pieces = _without(_with(head, known.values, pa.nulls(known.rows, pa.string())), known.faults)
        return [*pieces, Packed(batch.slice(known.rows))] if known.rows < batch.num_rows else pieces

    def _report(self, batch: pa.RecordBatch, faults: list[InvalidMessage]) -> None:
        first = self._error(batch, faults[0])
        logger.warning("skipped %d messages that cannot be decoded; the first one: %s", len(faults), first)

    def _error(self, batch: pa.RecordBatch, fault: InvalidMessage) -> Undecodable:
        partition, offset, codec = (batch.column(name)[fault.row].as_py() for name in ("partition", "offset", "codec"))
        return Undecodable(self.topic, partition, offset, codec, fault.rule)


def is_packed(batch: pa.RecordBatch) -> bool:
    """Whether any value names a codec."""
    named = batch.column(_CODEC)
    return bool(named.null_count < len(named))


def _with(batch: pa.RecordBatch, values: pa.Array, named: pa.Array) -> pa.RecordBatch:
    columns = list(batch.columns)
    columns[batch.schema.get_field_index(_VALUE)] = values
    columns[batch.schema.get_field_index(_CODEC)] = named
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _codecs_at(named: pa.Array, faults: list[InvalidMessage]) -> pa.Array:
    """The codecs of the rows at fault, and no others."""
    rows = np.full(len(named), -1, np.int64)
    rows[[fault.row for fault in faults]] = [fault.row for fault in faults]
    return named.take(masked(pa.int64(), rows, rows < 0))


def _last_of_partition(batch: pa.RecordBatch, bad: npt.NDArray[np.bool_]) -> list[int]:
    """The rows at fault that no message of the same partition follows in this batch."""
    partitions = plain_values(batch.column("partition"), np.int32)
    _, from_the_end = np.unique(partitions[::-1], return_index=True)
    last = np.sort(len(partitions) - 1 - from_the_end)
    return last[bad[last]].tolist()  # type: ignore[no-any-return]


def _without(plain: pa.RecordBatch, faults: list[InvalidMessage]) -> list[Piece]:
    """The batch without the rows at fault.

    Of most of these nobody needs to know, since a message of the same partition comes behind. Behind the others the
    batch is divided, so that positions move past them once what is before them was given out.
    """
    bad = np.zeros(plain.num_rows, np.bool_)
    bad[[fault.row for fault in faults]] = True
    pieces: list[Piece] = []
    begin = 0
    for row in [*_last_of_partition(plain, bad), plain.num_rows - 1]:
        part, is_bad = plain.slice(begin, row + 1 - begin), bad[begin : row + 1]
        if not is_bad.all():
            pieces.append(part.filter(booleans(~is_bad)) if is_bad.any() else part)
        if is_bad.any():
            pieces.append(Passed(int(is_bad.sum()), positions_behind(part) if bad[row] else {}))
        begin = row + 1
        if begin == plain.num_rows:
            break
    return pieces

"""What an upload is answered with, batch by batch: receipts as Arrow, or an error of the core tree as JSON.

The two cannot be mistaken for each other: an error is a JSON object, and what Arrow serialises begins otherwise.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import HeadraceError, ServerFailed
from headrace.core.publish.receipts import RECEIPT_SCHEMA, WRITTEN, Receipts
from headrace.wire.errors import decode_error, encode_error

_ERROR_BEGINS: Final = b"{"
# Values of the template whose bytes are nowhere else in it.
_PARTITION_MARK: Final = 0x5A5B5C5D
_OFFSET_MARK: Final = 0x6A6B6C6D6E6F7071
_PARTITION: Final = struct.Struct("<i")
_OFFSET: Final = struct.Struct("<q")


def encode_receipts(receipts: Receipts) -> pa.Buffer:
    """The receipts of one batch; one message that was written, the most frequent answer, has a template."""
    if len(receipts) != 1 or receipts.outcome[0] != WRITTEN:
        return receipts.to_arrow().serialize()
    return encode_written(receipts.partition[0], receipts.offset[0])


def encode_written(partition: int, offset: int) -> pa.Buffer:
    """The receipt of one message that was written."""
    template, partition_at, offset_at = _template()
    answer = bytearray(template)
    _PARTITION.pack_into(answer, partition_at, partition)
    _OFFSET.pack_into(answer, offset_at, offset)
    return pa.py_buffer(answer)


@functools.cache
def _template() -> tuple[bytes, int, int]:
    """The receipt of one written message, and where its partition and its offset are."""
    marked = Receipts(np.array([_PARTITION_MARK], np.int32), np.array([_OFFSET_MARK]), np.array([WRITTEN], np.uint8))
    encoded = marked.to_arrow().serialize().to_pybytes()
    return encoded, encoded.index(_PARTITION.pack(_PARTITION_MARK)), encoded.index(_OFFSET.pack(_OFFSET_MARK))


def encode_refusal(error: HeadraceError) -> pa.Buffer:
    """Why a batch was not written."""
    return pa.py_buffer(encode_error(error))


def decode_answer(answer: pa.Buffer) -> pa.RecordBatch | HeadraceError:
    """The receipts of a batch, or why there are none."""
    if answer.slice(0, 1).to_pybytes() == _ERROR_BEGINS:
        return decode_error(answer.to_pybytes()) or ServerFailed("it sent an error that is unknown here")
    return pa.ipc.read_record_batch(answer, RECEIPT_SCHEMA)

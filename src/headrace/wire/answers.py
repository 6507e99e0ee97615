"""What an upload is answered with, batch by batch: receipts as Arrow, or an error of the core tree as JSON.

The two cannot be mistaken for each other: an error is a JSON object, and what Arrow serialises begins otherwise.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.core.errors import HeadraceError, ServerFailed
from headrace.core.publish.receipts import RECEIPT_SCHEMA
from headrace.wire.errors import decode_error, encode_error

_ERROR_BEGINS: Final = b"{"


def encode_receipts(receipts: pa.RecordBatch) -> pa.Buffer:
    """The receipts of one batch."""
    return receipts.serialize()


def encode_refusal(error: HeadraceError) -> pa.Buffer:
    """Why a batch was not written."""
    return pa.py_buffer(encode_error(error))


def decode_answer(answer: pa.Buffer) -> pa.RecordBatch | HeadraceError:
    """The receipts of a batch, or why there are none."""
    if answer.slice(0, 1).to_pybytes() == _ERROR_BEGINS:
        return decode_error(answer.to_pybytes()) or ServerFailed("it sent an error that is unknown here")
    return pa.ipc.read_record_batch(answer, RECEIPT_SCHEMA)

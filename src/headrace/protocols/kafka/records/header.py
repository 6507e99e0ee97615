"""The head of a record batch: 61 bytes before the records, with the checksum over everything behind it.

Nothing of a batch is looked at before its length, its format and its checksum are right. Formats 0 and 1, which no
client of the last years writes, are refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from crc32c import crc32c

HEADER_BYTES: Final = 61
NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1

# Base offset, length, leader epoch, format, checksum; then what the checksum covers.
_FRAME: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_LENGTH_FROM: Final = 12
_FORMAT: Final = 2

_CODEC_BITS: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class BadRecords(Exception):
    """Records that are refused, with the name of Kafka's error for it."""

    error: ClassVar[str] = "invalid_record"


class CorruptRecords(BadRecords):
    """A checksum differs, or something does not decompress: clients send it again."""

    error = "corrupt_message"


class UnsupportedCodec(BadRecords):
    """Records compressed by something unknown."""

    error = "unsupported_compression_type"


class TooManyBytes(BadRecords):
    """Records that are larger than the limit once they are decompressed."""

    error = "record_list_too_large"


@dataclass(slots=True)
class BatchHeader:
    """What a record batch says of itself. Nobody changes it; `frozen` would take most of the time to create one."""

    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> int:
        """The number of the codec."""
        return self.attributes & _CODEC_BITS

    @property
    def is_log_append_time(self) -> bool:
        """Whether the largest timestamp counts for all records."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction, or marks the end of one."""
        return bool(self.attributes & (_TRANSACTIONAL | _CONTROL))


def is_compressed(batch: memoryview) -> bool:
    """Whether a batch says that its records are compressed; it has not been checked."""
    return len(batch) >= HEADER_BYTES and bool(batch[_FRAME.size + 1] & _CODEC_BITS)


def read_header(batch: memoryview) -> BatchHeader:
    """The head of the one batch that these bytes are."""
    if len(batch) > _LENGTH_FROM + 4 and batch[_FRAME.size - 5] != _FORMAT:
        raise BadRecords(f"record format {batch[_FRAME.size - 5]}: only format 2 is accepted")
    if len(batch) < HEADER_BYTES:
        raise CorruptRecords(f"{len(batch)} bytes are too few for a record batch")
    base_offset, length, _, _, checksum = _FRAME.unpack_from(batch)
    if length != len(batch) - _LENGTH_FROM:
        left = len(batch) - _LENGTH_FROM
        raise BadRecords(f"the batch says it has {length} bytes and there are {left}: send one batch per partition")
    if crc32c(batch[_FRAME.size :]) != checksum:
        raise CorruptRecords("the checksum of the record batch is wrong")
    return BatchHeader(base_offset, *_BODY.unpack_from(batch, _FRAME.size))


def write_header(header: BatchHeader, records: bytes | memoryview, leader_epoch: int = 0) -> bytes:
    """A whole batch: its head, and the records."""
    body = _BODY.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    checksum = crc32c(records, crc32c(body))
    length = HEADER_BYTES - _LENGTH_FROM + len(records)
    return b"".join([_FRAME.pack(header.base_offset, length, leader_epoch, _FORMAT, checksum), body, records])

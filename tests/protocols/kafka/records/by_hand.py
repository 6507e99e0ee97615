"""Record batches that are written byte by byte."""

from __future__ import annotations

import struct

from crc32c import crc32c


def resealed(data: bytes) -> bytes:
    """The batch with its length and checksum made right again."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def record(body: bytes, count: int = 1, attributes: int = 0, base_timestamp: int = 0) -> bytes:
    """A batch of records that are written by hand."""
    head = struct.pack(">hiqqqhii", attributes, count - 1, base_timestamp, 0, -1, -1, -1, count)
    return resealed(bytes(16) + b"\x02" + bytes(4) + head + body)

"""Poison messages: values that do not fit their codec, one scenario for every reader.

A topic of one partition holds good messages with undecodable ones between them and at the end. `VALUES` are the good
ones in order, `BAD` the offsets of the others. Whatever reads the topic must give out what comes before the first bad
one, and can be told to give the bad ones raw, or to skip them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from headrace.core.codecs import columns as codecs
from headrace.core.limits import DECODED_MESSAGE_BYTES_MAX


class Row(NamedTuple):
    value: bytes
    codec: str | None
    plain: bytes | None


def _good(text: bytes, codec: str) -> Row:
    return Row(codecs.compress(text, codec), codec, text)


def _bomb(codec: str) -> Row:
    """A small value that would take ten gigabytes, or just more than is allowed."""
    member = codecs.compress(bytes(DECODED_MESSAGE_BYTES_MAX // 8), codec)
    return Row(member * 9 if codec == "gzip" else member * 1280, codec, None)


ROWS: Final = [
    Row(b"plain", None, b"plain"),
    _good(b"by gzip", "gzip"),
    Row(b"not gzip", "gzip", None),
    _good(b"by zstd", "zstd"),
    Row(b"not zstd", "zstd", None),
    Row(b"", "gzip", None),
    Row(codecs.compress(b"cut short", "gzip")[:-3], "gzip", None),
    _good(b"by lzop", "lzop"),
    Row(b"not lzop", "lzop", None),
    Row(b"", "lzop", None),
    _bomb("zstd"),
    Row(b"raw", "raw", b"raw"),
    _bomb("gzip"),
    Row(b"", None, b""),
    Row(b"", "zstd", None),
]
VALUES: Final = [row.plain for row in ROWS if row.plain is not None]
BAD: Final = [offset for offset, row in enumerate(ROWS) if row.plain is None]
BEFORE: Final = VALUES[: BAD[0]]


def batch() -> pa.RecordBatch:
    """The rows, to be published."""
    return pa.record_batch(
        {
            "value": pa.array([row.value for row in ROWS], pa.binary()),
            "codec": pa.array([row.codec for row in ROWS], pa.string()),
        }
    )


def raw_values() -> list[bytes]:
    """What a reader gets that takes undecodable values raw."""
    return [row.value if row.plain is None else row.plain for row in ROWS]


def raw_codecs() -> list[str | None]:
    """The codecs that tell such a reader which values are undecodable."""
    return [row.codec if row.plain is None else None for row in ROWS]

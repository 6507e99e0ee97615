"""Which batch of which query this is: its number, and a fingerprint that tells equal numbers apart.

Two queries with one id, and two copies of one checkpoint, number their batches alike. The second one's batch must be
refused, or its rows would be taken for a repetition and vanish. A batch that Spark repeats must count as done.

So the fingerprint is that of `offsets/<number>` in the checkpoint. Spark writes this file before a batch runs: the
source offsets up to which it reads, and when it was planned. A repeated batch has the same file, in whatever order its
rows arrive and whatever random values they hold; another batch has another. If the file cannot be read, the commit
fails, and Spark repeats the batch when the query is started again. If the checkpoint is not in a local file system, the
fingerprint is that of the query's id, which tells two queries apart but not two copies of a checkpoint. Pipelines read
the file there too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from headrace.core.errors import InvalidInput
from headrace.core.publish.state import FINGERPRINT_BITS

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_LOCAL: Final = re.compile(r"file:(//(localhost)?(?=/))?")


@dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a stream; fingerprint: see above, None if nothing is known."""

    number: int
    fingerprint: int | None = None


def batch_id(number: int, checkpoint: str | None, query_id: str | None) -> BatchId:
    """Identify a batch by its query's checkpoint, or by the id of the query."""
    content = None if checkpoint is None else _planned(checkpoint, number)
    if content is None and query_id is not None:
        content = query_id.encode()
    return BatchId(number) if content is None else batch_of(number, content)


def batch_of(number: int, content: bytes) -> BatchId:
    """Identify a batch by the content of its file in `offsets`."""
    return BatchId(number, _fingerprint(content))


def mark_of(batch: BatchId, said: bytes) -> int:
    """A fingerprint that says something more of a batch."""
    return _fingerprint(f"{batch.fingerprint} ".encode() + said)


def _fingerprint(content: bytes) -> int:
    return int.from_bytes(sha256(content).digest()[: FINGERPRINT_BITS // 8])


def _planned(checkpoint: str, number: int) -> bytes | None:
    directory = _LOCAL.sub("", checkpoint)
    if _SCHEME.match(directory):
        return None
    offsets = Path(directory) / "offsets"
    try:
        return (offsets / str(number)).read_bytes()
    except OSError as error:
        # A path without a scheme may be of a remote file system: then there is nothing of it here.
        if isinstance(error, FileNotFoundError) and not offsets.exists():
            return None
        # Another fingerprint would make the batch another one, and its repetition a conflict.
        rule = f"offsets/{number} cannot be read: {error.strerror}. Nothing was written: start the query again"
        raise InvalidInput("checkpointLocation", repr(checkpoint)[:200], rule) from error

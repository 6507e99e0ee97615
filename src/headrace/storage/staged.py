"""Stages as they are read: pieces of rows, with the places that were chosen for them when they were written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.core.publish.placed import Places


class StagePiece(NamedTuple):
    """Rows of a stage that were written together, and where they go if that was decided when they were staged."""

    rows: pa.RecordBatch
    places: Places | None = None


class StoredStage(Protocol):
    """A stage as it was when it was asked for: its number of rows, their bytes, and whether any of them has a source.

    Its pieces may be read again and again. An engine with files reads each when it is asked for, so that only the
    pieces in use are in memory; then one that was damaged since is left out. A stage that is dropped meanwhile can be
    read until it is released; if it is not released, it is not deleted.
    """

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def has_sources(self) -> bool: ...

    def __iter__(self) -> Iterator[StagePiece]: ...

    def release(self) -> None: ...


class StageInMemory:
    """A stage whose pieces are in memory."""

    def __init__(self, pieces: Sequence[StagePiece]) -> None:
        self._pieces = pieces
        self.rows = sum(piece.rows.num_rows for piece in pieces)
        self.bytes = sum(piece.rows.nbytes for piece in pieces)
        self.has_sources = any("producer_id" in piece.rows.schema.names for piece in pieces)

    def __iter__(self) -> Iterator[StagePiece]:
        return iter(self._pieces)

    def release(self) -> None:
        """Nothing is held: its pieces are freed with it."""

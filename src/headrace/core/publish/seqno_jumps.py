"""Seqnos that jump: one far above the last of its source would make all between them duplicates, so it is refused."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import SeqnoJump
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import SEQNO_JUMP_MAX
from headrace.core.publish.sources import (
    NO_SOURCE,
    NOTHING_WRITTEN,
    RowSources,
    Source,
    SourceTable,
    first_jump,
    row_sources,
    seqnos_of,
)


class SeqnoWatch:
    """Looks for seqnos that jump, over all that is to be written in one commit, request by request."""

    def __init__(self, table: SourceTable, now_us: int) -> None:
        self._table = table
        self._now_us = now_us
        self._accepted: dict[Source, int] = {}

    def check(self, batches: Iterable[pa.RecordBatch]) -> SeqnoJump | None:
        """What is wrong with the first jump of a request's canonical batches; without one they count for the next."""
        accepted: dict[Source, int] = {}
        start = 0
        for batch in batches:
            if "seqno" in batch.schema.names and (sources := row_sources(batch)) is not None:
                seqno = seqnos_of(batch)
                highest, _ = self._table.lookup(sources.sources, self._now_us)
                for place, source in enumerate(sources.sources):
                    known = accepted.get(source, self._accepted.get(source, NOTHING_WRITTEN))
                    highest[place] = max(int(highest[place]), known)
                if (jump := first_jump(sources, seqno, highest)) is not None:
                    return _jump_error(sources, seqno, *jump, start)
                np.maximum.at(highest, sources.code[sources.code != NO_SOURCE], seqno[sources.code != NO_SOURCE])
                accepted |= dict(zip(sources.sources, highest.tolist(), strict=True))
            start += batch.num_rows
        self._accepted |= accepted
        return None


def may_jump(batch: pa.RecordBatch) -> bool:
    """Whether a batch has a seqno that could be a jump at all: small ones cannot, and need no closer look."""
    if "seqno" not in batch.schema.names:
        return False
    highest: int | None = pc.max(batch.column("seqno")).as_py()
    return highest is not None and highest > SEQNO_JUMP_MAX


def _jump_error(sources: RowSources, seqno: Int64s, row: int, before: int, start: int) -> SeqnoJump:
    producer_id, group_id = sources.sources[int(sources.code[row])]
    source = repr(producer_id) if not group_id else f"{producer_id!r} with message group {group_id!r}"
    rule = (
        f"it is more than {SEQNO_JUMP_MAX} above {before}, the one before it of producer {source}, which would make "
        "all seqnos between them duplicates; reset the source first if it is meant"
    )
    return SeqnoJump("seqno", str(int(seqno[row])), rule, start + row)

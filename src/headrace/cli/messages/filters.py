"""Which messages `headrace consume` prints: by key, value, or an expression over fields. Works on whole columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.exits import Exit, Failure
from headrace.client.where.expression import Condition
from headrace.client.where.matching import matches


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions that all must hold; a message without a key has none that could match."""

    key: bytes | None = None
    grep: str | None = None
    where: Condition | None = None

    def check(self) -> None:
        """Raise if the expression is none, before anything is read."""
        if self.grep is not None:
            try:
                pc.match_substring_regex(pa.array([b""]), self.grep)
            except pa.ArrowInvalid as error:
                raise Failure(
                    Exit.USAGE, f"--grep is {self.grep!r}: not a regular expression of RE2: {error}"
                ) from None

    def rows(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The rows that match."""
        mask = np.ones(batch.num_rows, np.bool_)
        if self.key is not None:
            mask &= _booleans(pc.equal(batch.column("key"), pa.scalar(self.key, pa.binary())))
        if self.grep is not None:
            mask &= _booleans(pc.match_substring_regex(batch.column("value"), self.grep))
        if self.where is not None:
            mask &= _booleans(matches(self.where, batch))
        return np.flatnonzero(mask)

    @property
    def is_set(self) -> bool:
        """Whether anything is left out."""
        return self.key is not None or self.grep is not None or self.where is not None


def _booleans(matches: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(matches, False).to_numpy(zero_copy_only=False)
    return found

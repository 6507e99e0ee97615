"""Times in bins of two per cent, so that those of many processes can be added and give percentiles."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_SMALLEST_SECONDS: Final = 1e-6
_GROWTH: Final = 1.02
# Up to about a thousand seconds; what takes longer counts there.
_BINS: Final = 1_050
_BARS: Final = 40
_EDGES_MS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class LatencyHistogram:
    """How often which time was taken. Used by one thread."""

    def __init__(self, counts: list[int] | None = None) -> None:
        self._counts = np.zeros(_BINS, np.int64) if counts is None else np.array(counts, np.int64)

    def add(self, seconds: npt.NDArray[np.float64]) -> None:
        """Count some times."""
        bins = np.log(np.maximum(seconds, _SMALLEST_SECONDS) / _SMALLEST_SECONDS) / np.log(_GROWTH)
        self._counts += np.bincount(np.minimum(bins.astype(np.int64), _BINS - 1), minlength=_BINS)

    def merge(self, other: LatencyHistogram) -> None:
        """Count what another one has counted."""
        self._counts += other._counts

    def counts(self) -> list[int]:
        """A form that another process can load."""
        return list(map(int, self._counts))

    @property
    def total(self) -> int:
        """How many times were counted."""
        return int(self._counts.sum())

    def percentile(self, percent: float) -> float:
        """A percentile in seconds, within two per cent; 0 if nothing was counted."""
        if not self.total:
            return 0.0
        wanted = max(1, int(np.ceil(self.total * percent / 100)))
        place = int(np.searchsorted(np.cumsum(self._counts), wanted))
        return float(_SMALLEST_SECONDS * _GROWTH ** (place + 0.5))

    def bars(self) -> list[tuple[str, int, str]]:
        """Lines for people: up to how many milliseconds, how many, and a bar."""
        upper_ms = _SMALLEST_SECONDS * _GROWTH ** np.arange(1, _BINS + 1) * 1e3
        rows = np.bincount(np.searchsorted(_EDGES_MS, upper_ms), self._counts, len(_EDGES_MS) + 1).astype(np.int64)
        labels = [f"<= {edge:g} ms" for edge in _EDGES_MS] + [f"> {_EDGES_MS[-1]:g} ms"]
        filled = np.flatnonzero(rows)
        if not len(filled):
            return []
        most = int(rows.max())
        return [
            (labels[row], int(rows[row]), "#" * int(np.ceil(_BARS * rows[row] / most)))
            for row in range(int(filled[0]), int(filled[-1]) + 1)
        ]

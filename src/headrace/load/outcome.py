"""The result of a load: rates, times, and whether everything arrived once and in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.load.histogram import LatencyHistogram
from headrace.load.load import Load
from headrace.load.verification import Findings

PERCENTS: Final = (50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True)
class LoadOutcome:
    """One load that was run."""

    load: Load
    publish_seconds: float
    read_seconds: float
    acknowledgements: LatencyHistogram
    latencies: LatencyHistogram
    findings: list[Findings]

    @property
    def is_good(self) -> bool:
        """Whether every group got everything once and in order."""
        return all(each.are_good for each in self.findings)

    @property
    def published_per_second(self) -> float:
        """Messages a second from the first send to the last acknowledgement."""
        return self.load.messages / max(self.publish_seconds, 1e-9)

    @property
    def read_per_second(self) -> float:
        """Messages a second that each group got, from the first send to the last message; 0 if none reads."""
        return self.load.messages / max(self.read_seconds, 1e-9) if self.findings else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "load": self.load,
            "published_per_second": self.published_per_second,
            "read_per_second": self.read_per_second,
            "acknowledged_ms": _percentiles(self.acknowledgements),
            "end_to_end_ms": _percentiles(self.latencies),
            "histogram": [{"time": label, "messages": count} for label, count, _ in self.latencies.bars()],
            "verified": self.is_good if self.findings else None,
            "groups": self.findings,
        }


def _percentiles(histogram: LatencyHistogram) -> dict[str, float]:
    return {f"p{percent:g}": histogram.percentile(percent) * 1e3 for percent in PERCENTS}

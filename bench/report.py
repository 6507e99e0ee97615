"""How benchmarks print: a number, what it is compared with, and the target beside it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """The usual percentiles of some times, in milliseconds."""
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50": float(p50) * 1e3, "p99": float(p99) * 1e3}


def machine() -> str:
    """The machine and the versions that the numbers belong to; a figure in the pages names them."""
    found = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(found, capture_output=True, text=True, check=False).stdout.strip() or "no checkout"
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    own = f"headrace {version('headrace')} ({commit}), Python {platform.python_version()}"
    versions = f"{own}, pyarrow {pa.__version__}, numpy {np.__version__}"
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, {versions}"


@dataclass
class Report:
    """Lines of a benchmark; `missed` collects the targets that were not met."""

    title: str
    missed: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Print the head."""
        print(f"{self.title}\n{machine()}\n", flush=True)

    def note(self, text: str) -> None:
        """Print something that has no target."""
        print(f"  {text}", flush=True)

    def line(self, what: str, value: float, unit: str, least: float | None = None, most: float | None = None) -> None:
        """Print a number, and whether it is within its target."""
        met = (least is None or value >= least) and (most is None or value <= most)
        target = (
            f"at least {_show(least)}" if least is not None else f"at most {_show(most)}" if most is not None else ""
        )
        ratio = value / (least or most or 1.0)
        verdict = "" if not target else f"   target {target}: {ratio:.2f} of it, {'met' if met else 'MISSED'}"
        if not met:
            self.missed.append(f"{what}: {_show(value)} {unit}, target {target}")
        print(f"  {what:<62} {_show(value):>14} {unit:<12}{verdict}", flush=True)

    def end(self) -> None:
        """Print what was missed, and leave with 1 if anything was."""
        if self.missed:
            print("\nmissed:\n  " + "\n  ".join(self.missed))
            sys.exit(1)
        print("\nall targets met")


def _show(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

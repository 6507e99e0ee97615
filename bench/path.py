"""The path of one message: which functions of which files run, in order, when it is published and when it is fetched.

    python -m bench.path            both paths on a disk store
    python -m bench.path --calls    with every call, not only the files

A switch is a call whose file is not that of the call before it: how often a reader who follows the calls in their order
turns to another file. The numbers are for comparison with an earlier version, not a gate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pyarrow as pa

import headrace
from headrace import Broker

ROOT = Path(headrace.__file__).parent


@dataclass
class Trace:
    """The calls of one operation in their order, each with its depth, file and function."""

    calls: list[tuple[int, str, str]] = field(default_factory=list)
    _depth: int = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(ROOT):
            return
        if event == "call":
            self.calls.append((self._depth, str(path.relative_to(ROOT)), frame.f_code.co_qualname))
            self._depth += 1
        else:
            self._depth -= 1

    @property
    def files(self) -> int:
        """How many files take part."""
        return len({file for _, file, _ in self.calls})

    @property
    def switches(self) -> int:
        """How often a call is in another file than the call before it."""
        return sum(before[1] != after[1] for before, after in pairwise(self.calls))


def traced(operation: Callable[[], object]) -> Trace:
    """Run an operation, warmed up before, and record its calls in this thread."""
    operation()
    trace = Trace()
    sys.setprofile(trace)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return trace


def paths() -> dict[str, Trace]:
    """One message published and one fetched, on a disk store."""
    batch = pa.record_batch({"value": [b"42.00"], "key": [b"user-1"]})
    with tempfile.TemporaryDirectory() as directory, Broker.open(f"file:{directory}/store") as broker:
        broker.create_topic("orders")
        return {
            "publish": traced(lambda: broker.publish("orders", batch)),
            "fetch": traced(lambda: broker.fetch("orders", partition=0, offset=0)),
        }


def printed(name: str, trace: Trace, with_calls: bool) -> None:
    """The path as an indented list: a line for each change of file on the way in, or for each call."""
    print(f"{name}: {len(trace.calls)} calls in {trace.files} files, {trace.switches} switches between files")
    before = ""
    for depth, file, function in trace.calls:
        if with_calls or file != before:
            print(f"  {'  ' * depth}{function:<{max(1, 60 - 2 * depth)}} {file}")
        before = file
    print()


def main() -> None:
    """Print both paths."""
    parser = argparse.ArgumentParser(description="print the path of a message through the code")
    parser.add_argument("--calls", action="store_true", help="every call, not only changes of file")
    arguments = parser.parse_args()
    for name, trace in paths().items():
        printed(name, trace, arguments.calls)


if __name__ == "__main__":
    main()

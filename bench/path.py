"""The path of one message: which functions of which files run, in order, when it is published and when it is fetched.

    python -m bench.path            on a disk store: in process, over Flight and over Kafka, and an offset commit
    python -m bench.path --calls    with every call, not only the files

Over the wire the calls of all threads are counted: with Flight those of client and server, which share the process,
with Kafka those of the server. Work that a server does at the same time for itself is counted too, so such figures
differ a little from run to run. A switch is a call whose file is not that of the call before it: how often a reader who
follows the calls in their order turns to another file. The numbers are for comparison with an earlier version, not a
gate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pyarrow as pa
from confluent_kafka import Producer

import headrace
from headrace import Broker
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http.server import bind, port_of
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings

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


class Walk:
    """The calls of all threads that begin while it is installed, recorded while an operation runs."""

    def __init__(self) -> None:
        self._traces: dict[str, Trace] = {}
        self._is_on = False

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        if self._is_on:
            name = threading.current_thread().name.rstrip("0123456789-_")
            self._traces.setdefault(name, Trace())(frame, event, argument)

    def of(self, operation: Callable[[], object]) -> dict[str, Trace]:
        """The calls of an operation, warmed up before, by thread."""
        for _ in range(3):
            operation()
        self._traces = {"caller": Trace()}
        self._is_on = True
        sys.setprofile(self._traces["caller"])
        try:
            operation()
        finally:
            sys.setprofile(None)
            self._is_on = False
        return {name: trace for name, trace in self._traces.items() if trace.calls}


def paths() -> dict[str, Trace]:
    """One message published and one fetched, on a disk store."""
    batch = pa.record_batch({"value": [b"42.00"], "key": [b"user-1"]})
    with tempfile.TemporaryDirectory() as directory, Broker.open(f"file:{directory}/store") as broker:
        broker.create_topic("orders")
        return {
            "publish": traced(lambda: broker.publish("orders", batch)),
            "fetch": traced(lambda: broker.fetch("orders", partition=0, offset=0)),
        }


def walks() -> dict[str, dict[str, Trace]]:
    """A send over Flight, a batch of an idempotent Kafka producer and an offset commit, by thread."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        walk = stack.enter_context(Walk())
        broker = stack.enter_context(Broker.open(f"file:{directory}/store"))
        broker.create_topic("orders")
        listeners = bind("127.0.0.1", 0)
        stack.enter_context(KafkaServer(broker, broker.access, KafkaSettings(), listeners))
        flight = FlightServer(broker, broker.access, "grpc://127.0.0.1:0")
        stack.callback(flight.shutdown)
        client = stack.enter_context(headrace.connect(f"headrace://127.0.0.1:{flight.port}"))
        producer = stack.enter_context(client.producer("orders"))
        found = {"Flight send": walk.of(lambda: producer.send(b"42.00", key=b"user-1").result())}
        broker.register_group("orders", "readers")
        offsets = iter(range(1, 4 + 1))
        found["offset commit"] = walk.of(lambda: broker.commit_offsets("orders", "readers", {0: next(offsets)}))
        kafka = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port_of(listeners)}",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

        def produce() -> None:
            kafka.produce("orders", b"42.00", b"user-1")
            kafka.flush(10.0)

        found["Kafka produce"] = walk.of(produce)
        return found


def printed(name: str, trace: Trace, with_calls: bool) -> None:
    """The path as an indented list: a line for each change of file on the way in, or for each call."""
    print(f"{name}: {len(trace.calls)} calls in {trace.files} files, {trace.switches} switches between files")
    before = ""
    for depth, file, function in trace.calls:
        if with_calls or file != before:
            print(f"  {'  ' * depth}{function:<{max(1, 60 - 2 * depth)}} {file}")
        before = file
    print()


def summarised(name: str, traces: dict[str, Trace], with_calls: bool) -> None:
    """A walk over the wire: its threads, and with `with_calls` what each calls."""
    calls = [call for trace in traces.values() for call in trace.calls]
    files = {file for _, file, _ in calls}
    print(f"{name}: {len(calls)} calls in {len(files)} files, by {len(traces)} kinds of threads")
    for thread, trace in traces.items():
        print(f"  {thread:<28} {len(trace.calls):>4} calls, {trace.switches:>3} switches between files")
        if with_calls:
            for depth, file, function in trace.calls:
                print(f"    {'  ' * depth}{function:<{max(1, 58 - 2 * depth)}} {file}")
    print()


def main() -> None:
    """Print all paths."""
    parser = argparse.ArgumentParser(description="print the path of a message through the code")
    parser.add_argument("--calls", action="store_true", help="every call, not only changes of file")
    arguments = parser.parse_args()
    for name, trace in paths().items():
        printed(name, trace, arguments.calls)
    for name, traces in walks().items():
        summarised(name, traces, arguments.calls)


if __name__ == "__main__":
    main()

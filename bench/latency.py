"""What one message waits: for its receipt, for a consumer that follows, and at first, over each wire in turn.

    python -m bench.latency                     --turns, --seconds, --rates

Printed are p50 and p99 over all turns, and the native wire's p50 as a part of Flight's. Servers have a token and
limits; every message is synced before its receipt. Redis Streams with a sync on every write is measured beside, if
redis-server and redis-py are installed. Figures count only from a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.peers import processes
from bench.peers.redis_streams import RedisStreams
from bench.peers.work import Missing
from bench.report import Report, percentiles_ms
from headrace.broker import Broker
from headrace.client import connect

VALUE: Final = b"x" * 100
WIRES: Final = {"Flight": ("--native", "off"), "native": ("--native", "127.0.0.1:0")}
# What is measured first is not counted: connections are opened, and code is met for the first time.
_WARM_MESSAGES: Final = 50
_FRESH: Final = """
import sys, time
from headrace.client import connect
began = time.perf_counter()
with connect(sys.argv[1], sys.argv[2]) as client, client.producer("fresh") as producer:
    producer.send(b"first").result()
    print(time.perf_counter() - began)
"""


@dataclass(frozen=True)
class Server:
    """A server with one wire or both."""

    url: str
    token: str


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Server]:
    """A server on a store of its own, with a token and the topics of this bench."""
    directory.mkdir()
    token_file = directory / "token"
    command = [sys.executable, "-m", "headrace", "serve", f"--store=file:{directory}/store", "--log-level", "error"]
    command += ["--http", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--set", f"first_token_file={token_file}", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"headrace://\S+", process.stdout.readline())
        assert found is not None, "the server did not start"
        server = Server(found[0], token_file.read_text().strip())
        with connect(server.url, server.token) as client:
            for topic in ("waiting", "followed", "fresh"):
                client.create_topic(topic)
        yield server
    finally:
        process.terminate()
        process.communicate()


def waiting(server: Server, seconds: float) -> list[float]:
    """How long each of some messages takes, one after another, from `send` to its receipt."""
    with connect(server.url, server.token) as client, client.producer("waiting") as producer:
        return timed(lambda: producer.send(VALUE).result(), seconds)


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """How long each call takes, for so long."""
    for _ in range(_WARM_MESSAGES):
        call()
    taken, end = list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call()
        taken.append(time.perf_counter() - began)
    return taken


def followed(server: Server, rate: float, seconds: float) -> list[float]:
    """How long each message takes from `send` to a consumer in another process that follows, at a steady rate."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    count = _WARM_MESSAGES + int(rate * seconds)
    process = context.Process(target=_follow, args=(server, count, there), daemon=True)
    process.start()
    here.recv()
    try:
        with connect(server.url, server.token) as client, client.producer("followed") as producer:
            begin = time.perf_counter()
            for number in range(count):
                while (left := begin + number / rate - time.perf_counter()) > 0:
                    time.sleep(left)
                producer.send(repr(time.time()).encode())
        waits: list[float] = here.recv()
        return waits[_WARM_MESSAGES:]
    finally:
        process.join(60.0)


def _follow(server: Server, count: int, pipe: Connection) -> None:
    """The top of the consumer's process."""
    waits: list[float] = []
    with connect(server.url, server.token) as client, client.consumer("followed", start="latest") as consumer:
        consumer.poll(timeout=0.0)
        pipe.send(None)
        while len(waits) < count:
            batch = consumer.poll(timeout=5.0)
            now = time.time()
            waits += [now - float(value) for value in batch.column("value").to_pylist()]
    pipe.send(waits)


def first(directory: Path, *options: str) -> float:
    """How long a fresh client on a fresh server takes from `connect` to its first receipt, without its import."""
    with serving(directory, *options) as server:
        command = [sys.executable, "-c", _FRESH, server.url, server.token]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def in_process(directory: Path, seconds: float) -> list[float]:
    """How long a batch of one row takes without any wire."""
    schema = pa.schema([("value", pa.binary())])
    with Broker.open(f"file:{directory}/embedded") as broker:
        if not broker.list_topics():
            broker.create_topic("waiting")
        batch = pa.RecordBatch.from_arrays([pa.array([VALUE], pa.binary())], schema=schema)
        return timed(lambda: broker.publish("waiting", batch), seconds)


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement in each turn")
    parser.add_argument("--rates", type=float, nargs="*", default=[100.0, 1_000.0], help="messages/s to a consumer")
    given = parser.parse_args()
    report = Report("what one message waits")
    report.begin()
    taken: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    receipt, fresh = "send to receipt", "first message of a client"
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        directory = Path(root)
        servers = {wire: stack.enter_context(serving(directory / wire, *options)) for wire, options in WIRES.items()}
        redis = _redis(stack, directory, report)
        for turn in range(given.turns):
            taken[receipt, "in process"] += in_process(directory, given.seconds)
            if redis is not None:
                taken[receipt, "Redis"] += timed(redis.publish_one, given.seconds)
            for wire, server in servers.items():
                taken[receipt, wire] += waiting(server, given.seconds)
                for rate in given.rates:
                    taken[f"send to consumer, {rate:g}/s", wire] += followed(server, rate, given.seconds)
                taken[fresh, wire].append(first(directory / f"fresh-{wire}-{turn}", *WIRES[wire]))
    for (what, who), seconds in sorted(taken.items()):
        found = percentiles_ms(seconds)
        report.line(f"{what}, {who}, p50", found["p50"], "ms")
        report.line(f"{what}, {who}, p99", found["p99"], "ms")
        for other in ("Flight", "Redis"):
            if who == "native" and (what, other) in taken:
                ratio = found["p50"] / percentiles_ms(taken[what, other])["p50"]
                report.line(f"{what}, native of {other}, p50", ratio, "times")
    report.end()


def _redis(stack: ExitStack, directory: Path, report: Report) -> RedisStreams | None:
    peer = RedisStreams(synced=True)
    (directory / "redis").mkdir()
    try:
        peer.start(directory / "redis")
    except (Missing, ImportError) as missing:
        report.note(f"without Redis: {missing}")
        return None
    stack.callback(processes.stop_all)
    stack.callback(peer.stop)
    return peer


if __name__ == "__main__":
    main()

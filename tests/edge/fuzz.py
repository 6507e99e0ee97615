"""Spoiled streams given to the edge, in a process of its own: `python -m tests.edge.fuzz WAY SEED INPUTS SECONDS FILE`.

The file has the input that is being tried, so that it is known also if the process dies of it. WAY is `module`, which
gives the streams to `edge.arrow` and what comes out to everything that a server does with a batch; or `flight`, which
sends them to a Flight server. Whatever is not refused as `InvalidInput` must go through. Prints how many inputs were
tried and how many of them were accepted.
"""

from __future__ import annotations

import mmap
import resource
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.messages import NO_MESSAGES, accept_all, read_batch
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.edge.arrow import Stream
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http.formats import encode_fetched
from headrace.wire.tickets import Publish, encode
from tests.edge.mutations import mutated
from tests.edge.streams import seeds

BYTES_MAX = 1 << 20
INPUT_BYTES_MAX = 4 << 20
# What the process may take beyond what it has at its start: nothing that is refused needs more.
MEMORY_BYTES = 1 << 30


class Kept:
    """The input that is being tried, in a file that outlives the process."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(INPUT_BYTES_MAX + 8))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)

    def keep(self, body: bytes) -> None:
        self._map[: 8 + len(body)] = struct.pack("<q", len(body)) + body


def kept_input(file: Path) -> bytes:
    """What was tried last."""
    content = file.read_bytes()
    return content[8 : 8 + struct.unpack_from("<q", content)[0]]


def try_module(body: bytes) -> bool:
    """Decode a stream, and do with it what the server does; whether it was accepted."""
    try:
        batch = Stream(body, BYTES_MAX).batch()
    except InvalidInput as error:
        str(error).encode()
        return False
    assert batch.nbytes <= 2 * BYTES_MAX, batch.nbytes
    batch.slice(1).nbytes  # noqa: B018
    honest = pa.record_batch({"value": [b"honest"]})
    accepted, errors = accept_all([honest, batch, batch, honest], DEFAULT_SETTINGS, 4)
    for refusal in errors:
        assert refusal is None or isinstance(refusal, InvalidInput), refusal
    if errors:
        assert errors[0] is errors[3] is None
    for each in accepted:
        stored = each.drop_columns("partition") if "partition" in each.schema.names else each
        read = read_batch(stored, 0, 0, np.zeros(stored.num_rows, np.int64))
        encode_fetched(read, 0, "text")
    return not errors or errors[1] is None


def try_flight(port: int) -> Callable[[bytes], bool]:
    """Upload a stream to a server in this process; whether it was accepted."""
    # Not at the head: whoever only tries the module needs no gRPC.
    from tests.edge.raw_flight import Uploads

    uploads = Uploads(port)

    def attempt(body: bytes) -> bool:
        error = uploads.send(encode(Publish("fuzz")), body)
        assert error is None or "unexpected" not in error, error
        return error is None

    return attempt


def run(attempt: Callable[[bytes], bool], seed: int, inputs: int, seconds: float, kept: Kept) -> tuple[int, int]:
    """Try so many inputs, or as many as fit the seconds if they are not 0."""
    random, spoiled = Random(seed), seeds()
    tried = accepted = 0
    deadline = time.monotonic() + seconds
    while tried < inputs or time.monotonic() < deadline:
        body = mutated(spoiled, random)[:INPUT_BYTES_MAX]
        kept.keep(body)
        accepted += attempt(body)
        tried += 1
    return tried, accepted


def main() -> None:
    """Try inputs, from what the command line says."""
    way, seed, inputs, seconds, file = sys.argv[1:]
    kept = Kept(Path(file))
    broker = Broker.open("memory:")
    broker.create_topic("fuzz", partitions=4)
    server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0") if way == "flight" else None
    attempt = try_module if server is None else try_flight(server.port)
    assert NO_MESSAGES.num_rows == 0
    _bound_memory()
    tried, accepted = run(attempt, int(seed), int(inputs), float(seconds), kept)
    if server is not None:
        try:
            broker.fetch("fuzz", 0, 0)
        except HeadraceError as error:
            sys.exit(f"what was accepted cannot be read: {error}")
        server.stop(60.0)
    broker.close()
    print(tried, accepted)


def _bound_memory() -> None:
    """Let an allocation that is far too large fail rather than the machine."""
    status = Path("/proc/self/status").read_text().splitlines()
    has = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (has + MEMORY_BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()

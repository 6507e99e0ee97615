"""Clients that are slow, full, killed, or gone: the server and the others do not suffer from them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.errors import Closed, LimitExceeded, Overloaded, Unreachable
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.flight.reads import _PATIENCE_SECONDS as LOOK_SECONDS
from headrace.protocols.flight.server import FlightServer
from headrace.testing import EmbeddedTransport
from headrace.testing.transport import EmbeddedUpload
from headrace.wire.tickets import Upload
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.broker.clock import SettableClock
from tests.server_process import ROOT


@pytest.fixture
def clock() -> SettableClock:
    """What sessions go by."""
    return SettableClock()


@pytest.fixture
def broker(clock: SettableClock) -> Iterator[Broker]:
    with Broker.open("memory:", clock=clock) as opened:
        opened.create_topic("orders", partitions=4)
        yield opened


@pytest.fixture
def server(broker: Broker) -> Iterator[FlightServer]:
    limits = Limits(LimitSettings(flight_calls_max=16))
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0", limits=limits)
    yield served
    assert served.stop(PATIENCE_SECONDS)


@pytest.fixture
def client(server: FlightServer) -> Iterator[Client]:
    with connect(f"headrace://127.0.0.1:{server.port}", timeout_seconds=60) as made:
        yield made


def batch_of(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % (first + place) for place in range(count)])})


def test_cancelled_follow_frees_its_stream(client: Client, server: FlightServer) -> None:
    for _ in range(3):
        followings = [client.follow("orders") for _ in range(4)]
        eventually(lambda: server.streams_open == 4)
        for following in followings:
            following.close()
        eventually(lambda: server.streams_open == 0)
    assert LOOK_SECONDS < 1.0, "a stream that waits sees within a second that nobody wants it any more"


def test_one_stream_too_many_is_refused_with_a_clear_error(broker: Broker, server: FlightServer) -> None:
    with connect(f"headrace://127.0.0.1:{server.port}", timeout_seconds=0.2) as client:
        followings = [client.follow("orders") for _ in range(4)]
        eventually(lambda: server.streams_open == 4)
        with pytest.raises(LimitExceeded) as refused, client.follow("orders") as following:
            next(following)
        assert refused.value.limit == 4
        followings.pop().close()
        eventually(lambda: server.streams_open == 3)
        assert client.read("orders").num_rows == 0
        for following in followings:
            following.close()


def until_renewed(broker: Broker, member: str, clock: SettableClock) -> None:
    """Wait until a member has shown that it lives since the clock was moved."""
    groups = broker.topics.find("orders").groups
    eventually(lambda: (groups.sessions.until_us("g", member) or 0) > clock.now_us() + 9_000_000)


def test_client_process_that_is_killed_frees_its_streams_and_its_partitions(
    client: Client, broker: Broker, server: FlightServer, clock: SettableClock
) -> None:
    program = (
        "import headrace, sys\n"
        f"client = headrace.connect('headrace://127.0.0.1:{server.port}')\n"
        "producer = client.producer('orders', producer_id='victim')\n"
        "producer.send(b'from the victim').result()\n"
        "consumer = client.consumer('orders', group='g', session_timeout_seconds=10)\n"
        "print(consumer.assignment, flush=True)\n"
        "consumer.poll(timeout=60)\n"
        "consumer.poll(timeout=60)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline().strip() == "[0, 1, 2, 3]"
    with client.consumer("orders", group="g", session_timeout_seconds=10, member_id="survivor") as survivor:
        assert survivor.assignment != [0, 1, 2, 3]
        victim.kill()
        victim.wait(PATIENCE_SECONDS)
        victim.stdout.close()
        # The survivor goes on to beat, and the victim does not; its last heartbeat may still be under way.
        while len(broker.describe_group("orders", "g").members) == 2:
            clock.step(6)
            until_renewed(broker, "survivor", clock)
        with client.producer("orders", producer_id="p") as producer:
            producer.send_batch(batch_of(0, 1_000))
        seen: Counter[bytes] = Counter()
        while len(seen) < 1_001:
            batch = survivor.poll(timeout=PATIENCE_SECONDS)
            assert batch.num_rows, f"only {len(seen)} came"
            seen.update(batch.column("value").to_pylist())
        assert seen == Counter([b"from the victim", *(b"%d" % number for number in range(1_000))])
        survivor.commit()
        eventually(lambda: server.streams_open == 1)
    assert broker.describe_group("orders", "g").lag_messages == 0


def test_slow_consumer_holds_little_memory_and_stops_nobody(client: Client) -> None:
    big = pa.record_batch({"value": pa.array([b"x" * 10_000] * 100)})
    with client.consumer("orders", max_prefetch_bytes=1 << 20) as slow, client.consumer("orders") as quick:
        with client.producer("orders", producer_id="p") as producer:
            for _ in range(40):
                producer.send_batch(big)
        rows = 0
        while rows < 4_000:
            got = quick.poll(timeout=PATIENCE_SECONDS).num_rows
            assert got
            rows += got
        assert slow._intake._prefetch is not None
        assert slow._intake._prefetch._bytes < 4 << 20
        rows = 0
        while rows < 4_000:
            got = slow.poll(timeout=PATIENCE_SECONDS).num_rows
            assert got
            rows += got


class Stuck(EmbeddedTransport):
    """A transport whose uploads wait until they are let go."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.go = threading.Event()

    def upload(self, command: Upload, schema: pa.Schema) -> EmbeddedUpload:
        assert self.go.wait(PATIENCE_SECONDS)
        return super().upload(command, schema)


def test_full_buffer_makes_senders_wait_and_then_refuses(broker: Broker) -> None:
    transport = Stuck(broker)
    with Client(transport) as client:
        producer = client.producer("orders", producer_id="p", buffer_bytes_max=10_000, timeout_seconds=60)
        accepted = []
        with pytest.raises(Overloaded) as full:
            for number in range(1_000):
                accepted.append(producer.send(b"%d" % number, timeout=0.05))  # noqa: PERF401
        assert full.value.limit == 10_000
        assert 50 < len(accepted) < 200
        opening = threading.Timer(0.2, transport.go.set)
        opening.start()
        accepted.append(producer.send(b"waits for room"))
        assert transport.go.is_set(), "before that there was no room"
        opening.join()
        assert [future.result(PATIENCE_SECONDS).status for future in accepted] == ["written"] * len(accepted)
        producer.close()
    assert sum(end for _, end in broker.offsets("orders").values()) == len(accepted)


def test_server_that_stops_ends_streams_and_tells_the_clients(broker: Broker) -> None:
    server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    with connect(f"headrace://127.0.0.1:{server.port}", timeout_seconds=0.3) as client:
        producer = client.producer("orders", producer_id="p", timeout_seconds=0.3)
        producer.send(b"1").result(PATIENCE_SECONDS)
        consumer = client.consumer("orders")
        began = time.monotonic()
        assert server.stop(PATIENCE_SECONDS)
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        with pytest.raises((Closed, Unreachable)):
            while True:
                consumer.poll(timeout=0.2)
        consumer.close()
        producer.close()

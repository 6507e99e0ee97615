"""A real server that is sent lies: it refuses them, lives, gives memory back, and serves others as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from headrace.core.limits import BATCH_ROWS_MAX
from headrace.protocols.http.formats import ARROW
from headrace.wire.tickets import Publish, encode
from tests.cli.processes import PATIENCE_SECONDS, Server
from tests.cli.test_flight import flight_url
from tests.edge.raw_flight import Uploads, command_field, flight_data, protobuf_field, upload
from tests.edge.streams import bomb, dictionaries, false_rows, short_bitmap, stream_of, values

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile") / "store") as running:
        running.post("topics", {"name": "orders"})
        yield running


def flight_port(server: Server) -> int:
    return int(flight_url(server).rpartition(":")[2])


def publish(server: Server, body: bytes, topic: str = "orders") -> httpx.Response:
    url = f"{server.url}/v1/topics/{topic}/messages"
    return httpx.post(url, content=body, headers={"content-type": ARROW}, timeout=PATIENCE_SECONDS)


def memory_bytes(server: Server, name: str) -> int:
    """What the kernel says of the server's memory: VmRSS is now, VmHWM was the most."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def is_well(server: Server) -> bool:
    """Whether the same process still takes messages, over both protocols."""
    honest = stream_of(pa.record_batch({"value": values(2)}))
    over_flight = upload(flight_port(server), encode(Publish("orders")), honest)
    return over_flight is None and publish(server, honest).status_code == 200


LIES = {
    "a bitmap shorter than its rows": short_bitmap(4_000),
    "more rows than offsets": false_rows(7, BATCH_ROWS_MAX, 1_000),
    "far more rows than offsets": false_rows(7, 1 << 40, 1_000),
    "a negative number of rows": false_rows(7, -1, 1_000),
    "a name that is no text": stream_of(pa.record_batch({"value": values(1), "qwert": values(1)})).replace(
        b"qwert", b"\xff\xfea\xffb"
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_over_http_is_refused(server: Server, lie: str) -> None:
    answer = publish(server, LIES[lie])
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert is_well(server)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_over_flight_is_refused(server: Server, lie: str) -> None:
    error = upload(flight_port(server), encode(Publish("orders")), LIES[lie])
    assert error is not None
    assert not error.startswith(("UNAVAILABLE", "DEADLINE_EXCEEDED"))
    assert is_well(server)


def test_a_bomb_over_http_gets_no_memory(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        server.post("topics", {"name": "orders"})
        assert is_well(server)
        before, body = memory_bytes(server, "VmHWM"), bomb(600 * MIB)
        assert len(body) < 100_000
        answer = publish(server, body)
        assert answer.status_code == 422 and "when decoded" in answer.json()["detail"]
        assert memory_bytes(server, "VmHWM") - before < 100 * MIB
        assert is_well(server)


def test_memory_of_a_bomb_over_flight_comes_back(tmp_path: Path) -> None:
    """Flight decompresses before anyone can look, so all that can be done is to refuse it and to give memory back."""
    with Server(tmp_path / "store") as server:
        server.post("topics", {"name": "orders"})
        assert is_well(server)
        before = memory_bytes(server, "VmRSS")
        error = upload(flight_port(server), encode(Publish("orders")), bomb(600 * MIB))
        assert error is not None and "at most" in error
        assert memory_bytes(server, "VmRSS") - before < 200 * MIB
        assert is_well(server)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_message_without_its_header_ends_no_server(tmp_path: Path, place: int) -> None:
    messages = [*flight_data(encode(Publish("orders")), dictionaries())]
    messages[place] = protobuf_field(3, b"x") + protobuf_field(1000, b"x" * 8)
    with Server(tmp_path / "store") as server:
        server.post("topics", {"name": "orders"})
        uploads = Uploads(flight_port(server))
        uploads.send_messages(messages)
        uploads.close()
        assert is_well(server)


@pytest.mark.parametrize("method", ["DoAction", "DoGet", "DoPut"])
def test_an_operation_that_is_no_text_over_flight_is_refused(server: Server, method: str) -> None:
    message = {
        "DoAction": protobuf_field(1, b"offsets") + protobuf_field(2, b'{"topic":"\xff"}'),
        "DoGet": protobuf_field(1, b'{"type":"\xff"}'),
        "DoPut": command_field(b'{"type":"\xff"}'),
    }[method]
    uploads = Uploads(flight_port(server), method)
    error = uploads.send_messages([message])
    uploads.close()
    assert error is not None and "unexpected" not in error and "malformed" in error

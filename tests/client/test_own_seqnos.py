"""Seqnos of the application's own: a file position or a row id that makes a load that runs again double nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import aio
from headrace.client import Client, connect
from headrace.core.errors import InvalidInput, InvalidMessage
from tests.broker.sites import DURABLE_ENGINES
from tests.server_process import PATIENCE_SECONDS, ROOT, ServerProcess

ON_POSTGRES = True


def rows_of(client: Client, topic: str) -> list[tuple[int, bytes]]:
    rows = client.read(topic, 0, 0, 100_000).to_pylist()
    return [(row["seqno"], row["value"]) for row in rows]


def test_what_was_sent_before_is_a_duplicate_and_the_rest_is_written(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders", producer_id="loader") as producer:
        known = [producer.last_seqno]
        for position in (0, 100, 250):
            assert producer.send(b"%d" % position, seqno=position).result().status == "written"
            known.append(producer.last_seqno)
        assert known == [None, 0, 100, 250]
    with client.producer("orders", producer_id="loader") as producer:
        assert producer.last_seqno == 250
        again = [producer.send(b"%d" % position, seqno=position) for position in (0, 100, 250, 300)]
        assert [future.result().status for future in again] == ["duplicate"] * 3 + ["written"]
        assert producer.last_seqno == 300
    assert rows_of(client, "orders") == [(number, b"%d" % number) for number in (0, 100, 250, 300)]


def test_batches_may_have_seqnos_of_their_own(client: Client) -> None:
    client.create_topic("orders")
    batch = pa.record_batch({"value": [b"a", b"b"], "seqno": [7, 9]})
    for expected in ("written", "duplicate"):
        with client.producer("orders", producer_id="loader", message_group_id="file-1") as producer:
            assert producer.send_batch(batch).column("status").to_pylist() == [expected] * 2
            assert producer.last_seqno == 9
            with pytest.raises(InvalidInput, match="seqno"):
                producer.send_batch(pa.record_batch({"value": [b"a"], "seqno": pa.array([None], pa.int64())}))
    assert client.last_seqno("orders", "loader", "file-1") == 9


def test_numbers_of_both_kinds_are_not_mixed(client: Client) -> None:
    """An automatic number could be one that the application gives later, which would be dropped in silence."""
    client.create_topic("orders")
    with client.producer("orders", producer_id="own") as producer:
        producer.send(b"a", seqno=5)
        with pytest.raises(InvalidInput, match="every message"):
            producer.send(b"b")
        with pytest.raises(InvalidInput, match="every message"):
            producer.send_batch(pa.record_batch({"value": [b"b"]}))
        producer.send(b"c", seqno=6)
    with client.producer("orders", producer_id="automatic") as producer:
        producer.send(b"a")
        with pytest.raises(InvalidInput, match="every message"):
            producer.send(b"b", seqno=5)
        producer.flush()
        assert producer.last_seqno == 1
    with client.producer("orders") as producer:
        with pytest.raises(InvalidInput, match="producer id"):
            producer.send(b"b", seqno=5)
        producer.send(b"d").result()
        assert producer.last_seqno is None


@pytest.mark.parametrize("seqno", [-1, 1 << 63, True, 1.5, "7"])
def test_a_faulty_seqno_is_refused_where_it_is_sent(client: Client, seqno: Any) -> None:
    client.create_topic("orders")
    with client.producer("orders", producer_id="p") as producer, pytest.raises(InvalidMessage, match="seqno"):
        producer.send(b"a", seqno=seqno)


def test_a_payload_that_repeats_moves_no_number(client: Client) -> None:
    client.create_topic("orders", deduplication="payload")
    with client.producer("orders", producer_id="p") as producer:
        statuses = [producer.send(b"same", seqno=number).result().status for number in (1, 2)]
        assert (statuses, producer.last_seqno) == (["written", "duplicate"], 1)
    assert client.last_seqno("orders", "p") == 1


def test_asyncio_has_own_seqnos_too(server: Any) -> None:
    async def send() -> list[Any]:
        async with aio.connect(f"headrace://127.0.0.1:{server.port}") as client:
            await client.create_topic("orders")
            found: list[Any] = []
            for _ in range(2):
                async with await client.producer("orders", producer_id="loader") as producer:
                    found.append(producer.last_seqno)
                    receipts = await asyncio.gather(*(producer.send(b"x", seqno=number) for number in (3, 8)))
                    found += [receipt.status for receipt in receipts]
                    found.append(producer.last_seqno)
            return found

    written, duplicate = ["written"] * 2, ["duplicate"] * 2
    assert asyncio.run(send()) == [None, *written, 8, 8, *duplicate, 8]


# A loader that is killed


@pytest.fixture(params=DURABLE_ENGINES, ids=lambda engine: engine.name)
def durable_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(request.param.url(tmp_path / "store", request.getfixturevalue))
    yield process
    process.close()


def loader(url: str, mode: str, pause_after: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.client.loader", url, "orders", "1000", mode]
    more = [] if pause_after is None else [str(pause_after)]
    return subprocess.Popen([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("mode", ["all", "rest"])
def test_a_loader_that_is_killed_and_runs_again_doubles_nothing(durable_server: ServerProcess, mode: str) -> None:
    with connect(durable_server.url) as client:
        client.create_topic("orders")
    for pause_after in (100, 300, None):
        with loader(durable_server.url, mode, pause_after) as process:
            assert process.stdout is not None
            if pause_after is None:
                assert process.stdout.readline() == "999\n"
                assert process.wait(PATIENCE_SECONDS) == 0
                continue
            assert process.stdout.readline() == "ready\n"
            process.kill()
            # The server is killed too: what it acknowledged is there, and the numbers with it.
            durable_server.kill()
            durable_server.start()
    with connect(durable_server.url) as client:
        assert rows_of(client, "orders") == [(number, b"line %d" % number) for number in range(1000)]

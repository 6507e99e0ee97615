"""A real `headrace serve --cursus` that is killed while its Python client sends: nothing is lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from tests.broker.background import eventually
from tests.ports import ReservedPort
from tests.protocols.cursus.site import producer
from tests.server_process import ServerProcess

PARTITIONS = 2
# Messages between two kills.
MESSAGES = 400


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.campaign)])
def test_an_idempotent_producer_writes_each_message_once(tmp_path: Path, kills: int) -> None:
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        server = ServerProcess(f"file:{tmp_path}/store", "--cursus", address)
        try:
            sent = 0
            with producer(address, "exact", partitions=PARTITIONS, idempotent=True, batch_size=50) as sending:
                for _ in range(kills):
                    before = sending.unique_ack_count
                    for _ in range(MESSAGES):
                        sending.send(str(sent))
                        sent += 1
                    # In the middle of its batches.
                    eventually(lambda before=before: sending.unique_ack_count > before)  # type: ignore[misc]
                    server.kill()
                    server.start()
            assert sending.unique_ack_count == sent
            with headrace.connect(server.url) as client:
                for partition in range(PARTITIONS):
                    rows = client.read("exact", partition, 0, sent)
                    numbers = [int(value) for value in rows.column("value").to_pylist()]
                    # Each partition in the order in which it was sent.
                    assert numbers == list(range(partition, sent, PARTITIONS))
        finally:
            server.close()

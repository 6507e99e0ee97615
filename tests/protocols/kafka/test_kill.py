"""A real `headrace serve --kafka` that is killed: what an idempotent producer sends again is not written twice."""

from __future__ import annotations

from pathlib import Path

import headrace
from tests.ports import ReservedPort
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built
from tests.protocols.kafka.test_hostile import produced
from tests.server_process import ServerProcess


def test_a_retry_after_a_kill_is_a_duplicate(tmp_path: Path) -> None:
    with ReservedPort() as port:
        server = ServerProcess(f"file:{tmp_path}/store", "--kafka", f"127.0.0.1:{port.number}")
        try:
            _send_around_a_kill(server, port.number)
        finally:
            server.close()


def _send_around_a_kill(server: ServerProcess, port: int) -> None:
    """The answer to a batch is lost with the server: sent again, it is found, and the next one follows it."""
    rows: list[Record] = [(NOW_MS, None, b"%d" % number, []) for number in range(3)]
    with headrace.connect(server.url) as client:
        client.create_topic("exact")
    with RawClient(port) as raw:
        assert produced(raw, "exact", (0, built(rows, producer=(7, 0, 0)))) == {0: (0, 0)}
    server.kill()
    server.start()
    with RawClient(port) as raw:
        assert produced(raw, "exact", (0, built(rows, producer=(7, 0, 0)))) == {0: (0, 0)}
        assert produced(raw, "exact", (0, built(rows, producer=(7, 0, 9)))) == {0: (45, -1)}
        assert produced(raw, "exact", (0, built(rows, producer=(7, 0, 3)))) == {0: (0, 3)}

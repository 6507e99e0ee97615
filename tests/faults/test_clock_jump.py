"""The clock of a machine is set while a real server runs: sessions end in time, and the jump is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.background import eventually
from tests.protocols.http.servers import Client
from tests.server_process import ServerProcess

LIBRARIES = [*Path("/usr/lib").glob("**/libfaketimeMT.so.1"), *Path("/usr/local/lib").glob("**/libfaketimeMT.so.1")]
HOUR_SECONDS = 3600

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime, which sets the clock of one process")


class SetClock:
    """A server whose time of day is that of the machine, and so much more as a file says."""

    def __init__(self, directory: Path) -> None:
        self._offset = directory / "offset"
        self.jump_to(0)
        variables = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self._server = ServerProcess(f"file:{directory / 'store'}?durability=os", variables=variables)
        self.port = self._server.port

    def jump_to(self, seconds: int) -> None:
        """Set the clock against that of the machine."""
        waiting = self._offset.with_suffix(".new")
        waiting.write_text(f"{seconds:+d}\n")
        waiting.rename(self._offset)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SetClock]:
    made = SetClock(tmp_path)
    yield made
    made.close()


def test_dead_member_loses_its_partition_and_a_living_one_keeps_its_own(server: SetClock) -> None:
    members = "/v1/topics/orders/groups/g/members"

    def ask(client: Client, method: str, path: str, body: Any = None) -> Any:
        status, answer = client.json(method, path, body)
        assert status in (200, 201), answer
        return answer

    with Client(server.port) as client:
        ask(client, "POST", "/v1/topics", {"name": "orders", "partitions": 2})
        ask(client, "PUT", f"{members}/dead", {"session_timeout_seconds": 1.0})
        ask(client, "PUT", f"{members}/live", {"session_timeout_seconds": 600.0})
        server.jump_to(-HOUR_SECONDS)
        eventually(lambda: ask(client, "POST", f"{members}/live/heartbeat")["partitions"] == [0, 1])
        generation = ask(client, "POST", f"{members}/live/heartbeat")["generation"]
        server.jump_to(HOUR_SECONDS)

        def jumps() -> float:
            _, _, body = client.send("GET", "/metrics")
            found = [line for line in body.decode().splitlines() if line.startswith("headrace_clock_jumps_total ")]
            return float(found[0].split()[1])

        eventually(lambda: jumps() == 2)
        assert ask(client, "POST", f"{members}/live/heartbeat")["generation"] == generation

"""What callers without a token send over gRPC is not kept, however long they say that their first message is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.raw_http2 import RawCall
from tests.hostile.flight_requests import KINDS, called
from tests.hostile.json_requests import JsonBody
from tests.hostile.target import Target

MIB = 1 << 20
# It would take as much memory as it announces; over YDB's port a message is at most so long.
ANNOUNCED = {"flight": 1024 * MIB, "ydb": 60 * MIB}
MEMORY_BYTES_MAX = 256 * MIB


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(Path(tmp_path_factory.mktemp("strangers"))) as target:
        yield target


METHODS = {
    "flight": [f"/arrow.flight.protocol.FlightService/{name}" for name in ("DoAction", "DoGet", "DoPut")],
    # The only one that reads before it knows who calls.
    "ydb": ["/Ydb.Auth.V1.AuthService/Login"],
}


@pytest.mark.parametrize(("protocol", "method"), [(each, name) for each, names in METHODS.items() for name in names])
def test_a_message_without_an_end_is_cut_off(target: Target, protocol: str, method: str) -> None:
    address = target.address
    before = address.memory_bytes()
    address.forget_peak()
    with RawCall(getattr(address, protocol), method) as call:
        sent = call.send(ANNOUNCED[protocol])
        # What comes between two looks at the sockets is read: that may be a whole message of YDB's.
        assert sent < ANNOUNCED[protocol] or protocol == "ydb"
    assert address.memory_bytes("VmHWM") - before < MEMORY_BYTES_MAX
    assert called(address, "list_topics", JsonBody(KINDS["list_topics"], "list_topics").encoded())

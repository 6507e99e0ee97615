"""Messages over gRPC that have no end: what arrived of them is not kept without bound, of strangers or of callers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.edge.raw_http2 import RawCall
from tests.hostile.flight_requests import KINDS, called
from tests.hostile.json_requests import JsonBody
from tests.hostile.target import Address, Target

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


# What a caller may have of messages that arrived in part: over Flight one batch may be as large.
SHARES = {"flight": 512 * MIB, "ydb": 16 * MIB}
SMALL = ("limits.request_bytes_max=8388608", "limits.requests_bytes_max=8388608")


@pytest.fixture(scope="module")
def small_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    arguments = [part for setting in SMALL for part in ("--set", setting)]
    with Target(tmp_path_factory.mktemp("callers"), *arguments) as target:
        yield target


@pytest.mark.parametrize("protocol", SHARES)
def test_halves_of_messages_of_a_caller_are_bounded(small_target: Target, protocol: str) -> None:
    address, share = small_target.address, SHARES[protocol]
    token = address.tokens["attacker"].encode()
    before = address.memory_bytes()
    address.forget_peak()
    sent = 0
    with ExitStack() as open_:
        while sent < share + 2 * MEMORY_BYTES_MAX:
            with suppress(OSError):
                sent += open_.enter_context(_half_sent(address, protocol, token)).send(share // 4)
        assert address.memory_bytes("VmHWM") - before < share + MEMORY_BYTES_MAX
        assert called(address, "list_topics", JsonBody(KINDS["list_topics"], "list_topics").encoded())


def _half_sent(address: Address, protocol: str, token: bytes) -> RawCall:
    """A call of a caller who is known, over a connection of its own."""
    if protocol == "ydb":
        header = (b"x-ydb-auth-ticket", token)
        return RawCall(address.ydb, "/Ydb.Topic.V1.TopicService/StreamWrite", header, patience_seconds=1.0)
    header, service = (b"authorization", b"Bearer " + token), "/arrow.flight.protocol.FlightService/"
    return RawCall(address.flight, f"{service}DoPut", header, first=f"{service}ListActions", patience_seconds=1.0)

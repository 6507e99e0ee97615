"""What callers without a token send over Flight is not kept, however long they say that their first message is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.raw_http2 import RawCall
from tests.hostile.flight_requests import KINDS, called
from tests.hostile.json_requests import JsonBody
from tests.hostile.target import Target

MIB = 1 << 20
# It would take as much memory as it announces.
ANNOUNCED = 1024 * MIB
MEMORY_BYTES_MAX = 256 * MIB


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(Path(tmp_path_factory.mktemp("strangers"))) as target:
        yield target


@pytest.mark.parametrize("method", ["DoAction", "DoGet", "DoPut"])
def test_a_message_without_an_end_is_cut_off(target: Target, method: str) -> None:
    address = target.address
    before = address.memory_bytes()
    address.forget_peak()
    with RawCall(address.flight, f"/arrow.flight.protocol.FlightService/{method}") as call:
        assert call.send(ANNOUNCED) < ANNOUNCED
    assert address.memory_bytes("VmHWM") - before < MEMORY_BYTES_MAX
    assert called(address, "list_topics", JsonBody(KINDS["list_topics"], "list_topics").encoded())

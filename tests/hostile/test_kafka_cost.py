"""What one request of each Kafka API costs at most, with every array repeated and every text of the greatest length.

All APIs of the table are tried, in all shapes of their versions: a new one is covered once it is in the table. It is a
good outcome if a request is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace.protocols.kafka.apis.table import APIS
from tests.hostile.cost import KEPT_BYTES_MAX, MIB, Attack, Trial
from tests.hostile.kafka_requests import CLASSIC_APIS, KafkaRequests, Shape, prepared, shapes
from tests.hostile.target import Address
from tests.protocols.kafka.raw import RawClient

COUNTS = (10_000, 100_000, 499_000)
# If the least of them is refused.
FEW = 100
# A server that still works on it then has done too much already.
ANSWER_SECONDS = 20.0
# How often something that may be kept is sent.
KEPT = 4
# These name members of groups, and may change them: each of their requests has groups of its own.
MEMBER_APIS = {*CLASSIC_APIS, "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "DescribeGroups"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("cost"), "--set", "kafka.rebalance_delay_seconds=0.05") as trial:
        yield trial


_shared: dict[int, KafkaRequests] = {}


def requests_of(address: Address, key: int) -> KafkaRequests:
    """Requests of an API to a server. Groups that have members already take a second to let another one in."""
    if APIS[key].name in MEMBER_APIS:
        return prepared(address, f"scratch-{key}-{next(_numbers)}")
    if address.pid not in _shared:
        _shared[address.pid] = prepared(address, "scratch-shared")
    return _shared[address.pid]


def sent(request: bytes) -> Attack:
    """An attack that sends a request over a connection of its own; the size of the answer, 0 if it is refused."""

    def attack(address: Address) -> int:
        with (
            suppress(EOFError, OSError),
            RawClient(address.kafka, token=address.tokens["attacker"]) as client,
        ):
            client.patience(ANSWER_SECONDS)
            client.send(request)
            return client.answer_size()
        return 0

    return attack


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_every_shape_of_every_api_is_served(trial: Trial, key: int) -> None:
    """Without this, the requests below may be refused for another reason than their size."""
    requests = requests_of(trial.address, key)
    for shape in shapes(key):
        with RawClient(trial.address.kafka, token=trial.address.tokens["attacker"]) as client:
            client.send(requests.encoded(shape, number=client.expect(shape.key, shape.version)))
            client.answer()


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_arrays_of_any_length_cost_little(trial: Trial, key: int) -> None:
    costly: dict[str, dict[str, object]] = {}
    for shape in shapes(key):
        for array in shape.arrays:
            # Versions that are not the newest differ in how they name things: there equal elements say nothing more.
            for is_distinct in (False, True) if shape == shapes(key)[-1] else (True,):
                costly |= longest_array(trial, key, shape, array, is_distinct)
    assert costly == {}


def longest_array(trial: Trial, key: int, shape: Shape, array: tuple[str, ...], is_distinct: bool) -> dict[str, Any]:
    """Longer and longer arrays, until one is refused or costs too much: what it cost then."""
    requests = requests_of(trial.address, key)
    # The first request of a version costs more: its schema is made.
    sent(requests.encoded(shape))(trial.address)
    counts = [*COUNTS]
    while counts:
        count = counts.pop(0)
        cost = trial.cost(sent(requests.repeated(shape, array, count, is_distinct)))
        what = f"version {shape.version}, {count:,} {'different' if is_distinct else 'equal'} {'.'.join(array)}"
        print(f"{shape.api} {what}: {cost}")
        if excess := cost.excess():
            return {what: excess}
        if not cost.answer_bytes:
            counts = [FEW] if count == COUNTS[0] else []
    return {}


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_texts_of_any_length_cost_little(trial: Trial, key: int) -> None:
    costly: dict[str, dict[str, object]] = {}
    shape = shapes(key)[-1]
    for text in shape.texts:
        memory = trial.address.memory_bytes()
        for _ in range(KEPT):
            cost = trial.cost(sent(requests_of(trial.address, key).long(shape, text)))
        kept = trial.kept_bytes(memory)
        print(f"{shape.api} {'.'.join(text)}: {cost}; kept {kept / MIB:.0f} MiB")
        excess = cost.excess() | ({"kept_bytes": kept} if kept > KEPT_BYTES_MAX else {})
        if excess:
            costly[".".join(text)] = excess
    assert costly == {}

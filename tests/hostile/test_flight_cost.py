"""What one call of each operation over Flight costs at most: with containers of any length, and with long texts.

All operations and tickets of the tables are tried: a new one is covered once it is there. What an upload carries beside
its command is in `tests.edge.test_hostile_uploads`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.core.errors import AccessDenied, InvalidInput
from headrace.wire.errors import decode_error
from tests.hostile.cost import Attack, Trial
from tests.hostile.flight_requests import KINDS, READING, called
from tests.hostile.json_requests import JsonBody, Long, variants
from tests.hostile.target import Address

# Far more than any operation needs.
ACTION_BYTES = 64 << 20


def sent(name: str, body: bytes) -> Attack:
    """An attack by one call; its cost has the size of the answer, or 0 if it is refused."""

    def attack(address: Address) -> int:
        try:
            return called(address, name, body)
        except pa.ArrowException:
            return 0

    return attack


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("cost")) as trial:
        yield trial


@pytest.mark.parametrize("name", KINDS)
def test_every_call_is_understood(trial: Trial, name: str) -> None:
    """Without this, the calls below may be refused for another reason than their size."""
    try:
        called(trial.address, name, JsonBody(KINDS[name], name).encoded())
    except flight.FlightTimedOutError:
        assert name in READING
    except flight.FlightError as error:
        refused = decode_error(error.extra_info)
        assert refused is not None and not isinstance(refused, AccessDenied | InvalidInput), error


@pytest.mark.parametrize("name", KINDS)
def test_calls_cost_little(trial: Trial, name: str) -> None:
    body, costly = JsonBody(KINDS[name], name), {}
    for what, given in [("nothing more", body.encoded()), *variants(body)]:
        cost = trial.cost(sent(name, given))
        print(f"{name} {what}: {cost}")
        if excess := cost.excess():
            costly[what] = excess
    assert costly == {}


def test_an_action_of_any_size_costs_little(trial: Trial) -> None:
    cost = trial.cost(sent("whoami", JsonBody(KINDS["whoami"], "whoami").encoded(("topic",), Long(ACTION_BYTES))))
    print(cost)
    assert cost.excess() == {}

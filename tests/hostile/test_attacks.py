"""Attacks on what all callers share: nobody else is cut off or waits long, and the server gives back what they took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.cost import KEPT_BYTES_MAX, MIB, Trial
from tests.hostile.target import Address

SECONDS = 2.0
# They last for a while, and may fill what the server has for requests and for answers of all callers together.
BOUNDS = {"memory_bytes": 768 * MIB, "wait_processor_seconds": 0.5, "wait_seconds": 10.0}
# Who has no room for longer is refused: that is seen while the attack lasts.
ARGUMENTS = ("--fixed", "port.room_seconds_max=1", "--set", "kafka.rebalance_delay_seconds=0.05")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("attacks"), *ARGUMENTS, bounds=BOUNDS) as trial:
        yield trial


@pytest.mark.parametrize("attack", ATTACKS)
def test_others_hardly_notice(trial: Trial, attack: str) -> None:
    def attacked(address: Address) -> int:
        print(f"{attack}: {ATTACKS[attack](address, SECONDS)}")
        return 0

    before = trial.address.memory_bytes()
    cost = trial.cost(attacked)
    print(cost)
    assert cost.excess(BOUNDS) == {}
    assert trial.kept_bytes(before) < KEPT_BYTES_MAX

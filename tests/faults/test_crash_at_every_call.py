"""The process dies, or the power is cut, at every single file-system call of everything that writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crashes import Scenario, crash_everywhere
from tests.faults.scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name).replace(" ", "-"))
def test_crash_at_every_call(scenario: Scenario, place: Path) -> None:
    assert crash_everywhere(scenario, place) > 0

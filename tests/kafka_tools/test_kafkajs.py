"""kafkajs, a client in JavaScript, as `make kafka-javascript` installs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kafka_tools.tools import PATIENCE_SECONDS

DIRECTORY = Path(__file__).parent / "javascript"

pytestmark = pytest.mark.kafka_tools


def test_offsets_are_set_and_reset(bootstrap: str) -> None:
    """It commits -2 and -1 for the two ends, and waited for ever where that was refused."""
    if not (DIRECTORY / "node_modules").is_dir():
        pytest.fail("kafkajs is missing: make kafka-javascript")
    ended = subprocess.run(
        ["node", "offsets.js", bootstrap, "by-kafkajs"],
        cwd=DIRECTORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert not ended.returncode, ended.stderr
    assert json.loads(ended.stdout) == {
        "set": ["2", "2"],
        "earliest": ["-2", "0", "0"],
        "latest": ["-1", "3"],
        "transaction": "INVALID_TRANSACTION_TIMEOUT",
    }

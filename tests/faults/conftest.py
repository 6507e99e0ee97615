"""Where fault tests put their stores."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory, in memory where the machine has that: thousands of stores are opened, and waiting for a device
    shows nothing, since it is a simulated one that loses what was not synced."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="headrace-faults-", dir=MEMORY))
    yield directory
    shutil.rmtree(directory)

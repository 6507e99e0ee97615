"""Where the files of these tests are: in memory, if the machine has a file system there.

Tests make thousands of syncs. What counts is that they are asked for and what follows if they fail; on a busy disk
most of the time would go into waiting for a device that nobody asks afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.builders import scratch_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with scratch_directory() as directory:
        yield directory

"""The topic tests of Python's SDK, of the version of the extra `headrace[ydb]`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocols.ydb.site import YdbSite
from tests.ydb_sdk.suites import PYTHON, TOPIC_TESTS, checkout, python_tests, run

# Transactions need tables.
LEFT_OUT = f"{TOPIC_TESTS}/test_topic_transactions.py"

pytestmark = pytest.mark.ydb_sdk


@pytest.fixture(scope="module")
def suite(workshop: Path) -> Path:
    target = workshop / "python"
    python_tests(checkout("YDB_SDK"), target)
    return target


@pytest.mark.parametrize(
    ("least", "variables"), [(75, {}), (93, {"HEADRACE_TEST_SKIPPED": "1"})], ids=["marked", "all"]
)
def test_the_sdk_passes_its_own_tests(place: YdbSite, suite: Path, least: int, variables: dict[str, str]) -> None:
    options = ["-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", f"--ignore={LEFT_OUT}", TOPIC_TESTS]
    printed = run([PYTHON, "-m", "pytest", *options], suite, HEADRACE_TEST_ENDPOINT=place.endpoint, **variables)
    ended = re.search(r"^(\d+) passed(?:, \d+ skipped)?(?:, \d+ warnings?)? in .*$", printed, re.MULTILINE)
    assert ended is not None, printed[-20_000:]
    assert int(ended[1]) >= least, printed[-20_000:]

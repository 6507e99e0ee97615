"""The topic tests of Python's SDK, of the version of the extra `headrace[ydb]`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocols.ydb.site import YdbSite
from tests.ydb_sdk.suites import PYTHON, TOPIC_TESTS, checkout, python_tests, run

# Transactions need tables.
LEFT_OUT = f"{TOPIC_TESTS}/test_topic_transactions.py"
# With two servers those that stop their driver may wait for ever, in the SDK; and a consumer that is moved through one
# server may have been handed out more by the other. docs/ydb.md.
NOT_WITH_TWO = (
    "test_preserve_exception_on_cm_close",
    "test_send_message_after_stop",
    "test_reader_reconnect_after_commit_offset",
)

pytestmark = pytest.mark.ydb_sdk


@pytest.fixture(scope="module")
def suite(workshop: Path) -> Path:
    target = workshop / "python"
    python_tests(checkout("YDB_SDK"), target)
    return target


@pytest.mark.parametrize(
    ("least", "variables"), [(75, {}), (93, {"HEADRACE_TEST_SKIPPED": "1"})], ids=["marked", "all"]
)
def test_the_sdk_passes_its_own_tests(
    request: pytest.FixtureRequest, place: YdbSite, suite: Path, least: int, variables: dict[str, str]
) -> None:
    options = ["-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", f"--ignore={LEFT_OUT}", TOPIC_TESTS]
    if request.node.callspec.params["place"] == "two servers":
        options += ["-k", f"not {' and not '.join(NOT_WITH_TWO)}"]
    printed = run([PYTHON, "-m", "pytest", *options], suite, HEADRACE_TEST_ENDPOINT=place.endpoint, **variables)
    pattern = r"^(\d+) passed(?:, \d+ skipped)?(?:, (\d+) deselected)?(?:, \d+ warnings?)? in .*$"
    ended = re.search(pattern, printed, re.MULTILINE)
    assert ended is not None, printed[-20_000:]
    assert int(ended[1]) + int(ended[2] or 0) >= least, printed[-20_000:]

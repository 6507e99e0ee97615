"""The topic tests of Go's SDK; what needs tables, the query service or splits of partitions is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocols.ydb.site import DATABASE, YdbSite
from tests.ydb_sdk.suites import checkout, run, unpack

# Of these files every test needs tables or transactions.
FILES_LEFT_OUT = "cdc_reader|transactions|topic_log|read_messages|read_update_offsets"
LEFT_OUT = "CDC|Changefeed|SplitPartitions|AutoPartitioning|AfterSplit"
# It expects that one stored message takes no room, and what was written in the last minute, which is not counted.
FAIL = {"TestTopicDescribePartitionStats"}

pytestmark = pytest.mark.ydb_sdk


@pytest.fixture(scope="module")
def suite(workshop: Path) -> Path:
    target = workshop / "go"
    unpack(checkout("YDB_GO_SDK"), target)
    printed = run(["go", "test", "-tags", "integration", "-c", "-o", "tests.bin", "./tests/integration"], target)
    assert (target / "tests.bin").exists(), printed[-5_000:]
    return target


def test_the_sdk_passes_its_own_tests(place: YdbSite, suite: Path) -> None:
    directory = suite / "tests" / "integration"
    texts = [path.read_text() for path in directory.glob("topic_*_test.go") if not re.search(FILES_LEFT_OUT, path.name)]
    names = set(re.findall(r"^func (Test\w+)\(t ", "\n".join(texts), re.MULTILINE))
    chosen = {name for name in names if not re.search(LEFT_OUT, name)}
    printed = run(
        [suite / "tests.bin", "-test.v", "-test.timeout=480s", f"-test.run=^({'|'.join(sorted(chosen))})$"],
        directory,
        YDB_CONNECTION_STRING=f"grpc://{place.endpoint}{DATABASE}",
        YDB_VERSION="25.3",
    )
    ended = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", printed, re.MULTILINE)
    assert {name for kind, name in ended if kind == "FAIL"} <= FAIL, printed[-20_000:]
    # One of them skips itself: it is for a newer YDB.
    assert len([name for kind, name in ended if kind == "PASS"]) >= len(chosen) - len(FAIL) - 1, printed[-20_000:]
    assert len(chosen) >= 45, printed[-20_000:]

"""The topic tests of JavaScript's SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.protocols.ydb.site import DATABASE, YdbSite
from tests.ydb_sdk.suites import checkout, run, unpack

pytestmark = pytest.mark.ydb_sdk


@pytest.fixture(scope="module")
def suite(workshop: Path) -> Path:
    target = workshop / "javascript"
    unpack(checkout("YDB_JS_SDK"), target)
    printed = run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)
    assert (target / "node_modules" / "vitest").exists(), printed[-5_000:]
    return target


def test_the_sdk_passes_its_own_tests(place: YdbSite, suite: Path) -> None:
    outcome = suite / "outcome.json"
    outcome.unlink(missing_ok=True)
    reported = ["--reporter=default", "--reporter=json", f"--outputFile.json={outcome}"]
    printed = run(
        ["npx", "vitest", "run", "--project", "int", *reported, "packages/topic/tests/"],
        suite,
        YDB_CONNECTION_STRING=f"grpc://{place.endpoint}{DATABASE}",
    )
    assert outcome.exists(), printed[-20_000:]
    report = json.loads(outcome.read_text())
    assert not report["numFailedTests"] and report["numPassedTests"] >= 24, printed[-20_000:]

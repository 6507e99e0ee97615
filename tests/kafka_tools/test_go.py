"""Clients in Go, as `make kafka-go` builds them: franz-go with its own tests of a broker, and sarama."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.kafka_tools.tools import PATIENCE_SECONDS

BUILT = Path(__file__).parents[2] / "build" / "kafka-go"
FRANZ_GO = BUILT / "franz-go" / "pkg" / "kgo"
# They need transactions, a topic __consumer_offsets, or batches that are handed out compressed: docs/kafka.md.
LEFT_OUT = "TestTxnEtl|TestConsumeRegex$|Test848RegexBrokerResolves|TestPooling|TestConsumeMaxDecompressBatchBytes"
# The files whose tests need a broker.
ON_BROKER = ("client", "consumer", "group", "produce_request")
RECORDS = 10_000

pytestmark = pytest.mark.kafka_tools


def run(program: str, *options: str, **more: str) -> str:
    if not (BUILT / "bin" / program).exists():
        pytest.fail(f"{program} is missing: make kafka-go")
    ended = subprocess.run(
        [BUILT / "bin" / program, *options],
        cwd=FRANZ_GO,
        env=os.environ | more,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert not ended.returncode, ended.stdout[-10_000:] + ended.stderr
    return ended.stdout


def test_franz_go_passes_its_own_tests(bootstrap: str) -> None:
    files = [(FRANZ_GO / f"{name}_test.go").read_text() for name in ON_BROKER]
    names = re.findall(r"^func (Test\w+)", "\n".join(files), re.MULTILINE)
    options = ["-test.v", f"-test.run=^({'|'.join(names)})$", f"-test.skip={LEFT_OUT}"]
    printed = run("franz-go-tests", *options, KGO_SEEDS=bootstrap, KGO_TEST_RF="1", KGO_TEST_RECORDS=str(RECORDS))
    passed = set(re.findall(r"^--- PASS: (\w+)", printed, re.MULTILINE))
    assert {"TestGroupETL", "TestGroupSimple", "TestClient_Produce", "TestIssue434"} <= passed


def test_no_topic_of_a_fetch_session_starves(bootstrap: str) -> None:
    """Of the first half of two topics of one size, Kafka gives about half of each."""
    assert 0.4 * RECORDS <= int(run("fairness", bootstrap)) <= 0.6 * RECORDS


def test_a_group_of_sarama_processes_everything_in_order(bootstrap: str) -> None:
    distinct, read, is_ordered = run("exchange", bootstrap).split()
    assert int(distinct) == RECORDS and int(read) >= RECORDS and is_ordered == "true"

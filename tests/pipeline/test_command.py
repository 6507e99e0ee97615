"""`headrace pipeline` as a process: what is wrong is one line and an exit code; what runs tells what it does.

Kills, signals and restarts of a running pipeline are in the demo, which tests/cli/test_demo.py runs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from headrace.client import Client
from tests.cli.processes import HEADRACE, Result, environment, headrace
from tests.pipeline.runs import ROOT

# Spark's Java is started once, on a machine that may be busy.
PATIENCE_SECONDS = 900.0
# Longer than any other test may take.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60.0)
PIPELINE = """
[server]
url = "${SERVER}"
[source]
topic = "${TOPIC}"
mode = "${MODE:-stream}"
[sink]
topic = "${TARGET}"
[run]
checkpoint = "${CHECKPOINT:-}"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "copy.toml"
    made.write_text(PIPELINE)
    return made


def headrace_on_spark(command: str, *arguments: str, **variables: str) -> Result:
    """`headrace pipeline COMMAND …`, with a Spark of its own."""
    ended = subprocess.run(
        [HEADRACE, "pipeline", command, *arguments, "--master", "local[1]"],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)


def test_wrong_usage(file: Path, tmp_path: Path) -> None:
    assert "--var NAME=VALUE" in headrace("pipeline", "run", str(file), "--var", "TOPIC").refused(2)
    assert "SERVER is not set" in headrace("pipeline", "run", str(file)).refused(2)
    assert "cannot be read" in headrace("pipeline", "check", str(tmp_path / "nothing.toml")).refused(2)
    file.write_text(PIPELINE.replace("topic =", "topik ="))
    assert "source.topik" in headrace("pipeline", "run", str(file), SERVER="headrace://127.0.0.1:1").refused(2)


def test_what_the_broker_lacks_ends_before_spark_starts(
    file: Path, tmp_path: Path, url: str, client: Client, topic: str
) -> None:
    given = {"SERVER": url, "TOPIC": topic, "TARGET": f"{topic}-out", "CHECKPOINT": str(tmp_path / "cp")}
    told = headrace("pipeline", "run", str(file), "--once", **given).refused(1)
    assert f"topic '{topic}' does not exist" in told
    client.create_topic(topic)
    told = headrace("pipeline", "check", str(file), **given).refused(1)
    assert f"topic '{topic}-out' does not exist" in told
    (tmp_path / "cp" / "offsets").mkdir(parents=True)
    assert "run.checkpoint" in headrace("pipeline", "run", str(file), **given).refused(2)


def test_sample_rows_without_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "doubled.toml"
    file.write_text(
        """
[source]
topic = "orders"
schema = "id BIGINT NOT NULL"
[[steps]]
name = "doubled"
sql = "SELECT id * 2 AS id FROM source"
[sink]
topic = "doubled"
value = "to_json(struct(*))"
[run]
checkpoint = "checkpoint"
[[tests]]
name = "numbers are doubled"
source = [{ value = { id = 2 } }]
expect = [{ value = { id = 4 } }]
[[tests]]
name = "numbers are tripled"
source = [{ value = { id = 2 } }]
expect = [{ value = { id = 6 } }]
"""
    )
    result = headrace_on_spark("test", str(file))
    assert result.code == 1 and "1 of 2 tests failed: numbers are tripled" in result.err, result
    lines = result.out.splitlines()
    assert lines[:2] == ["ok: numbers are doubled", "FAILED: numbers are tripled"]
    assert lines[2] == '  missing: {"value":{"id":6}}' and lines[3].startswith("  unexpected: {")
    assert not (tmp_path / "checkpoint").exists()


def test_a_report_as_json_lines(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(topic) as producer:
        for _ in range(2):
            producer.send(b"twice", key=b"k").result()
    file = str(ROOT / "pipelines" / "audit.toml")
    result = headrace_on_spark("run", file, "--json", "--var", f"TOPIC={topic}", "--var", "PAYLOADS=true", SERVER=url)
    assert result.code == 1, result
    assert "headrace: the report of audit has rows, and it must be empty" in result.err
    report, done = (json.loads(line) for line in result.out.splitlines())
    assert report["event"] == "report"
    assert {row["check"]: row["wrong"] for row in report["rows"]}["no payload twice in the window"] == 1
    assert (done["event"], done["messages"], done["is_refused"]) == ("done", 2, True)

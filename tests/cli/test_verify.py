"""`headrace verify` as users run it: a real server, real clients, and histories that are checked again."""

from __future__ import annotations

from pathlib import Path

from headrace.verify.history.events import Began
from headrace.verify.history.file import Recorder
from tests.cli.processes import headrace
from tests.verify.test_checks import BAD


def test_a_server_is_verified_and_its_history_checked_again(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    result = headrace("verify", "--seconds", "2", "--no-seeks", "--seed", "7", "--history", str(history))
    assert result.code == 0, result
    assert result.out.startswith("good: ") and result.err == "verifying for 2 seconds with seed 7\n"
    again = headrace("verify", "check", str(history), "--json").json()
    assert again["verdict"] == "good" and again["report"]["acknowledged"] > 0
    assert again["report"]["read"] >= 2 * again["report"]["acknowledged"]
    assert headrace("verify", "--seconds", "1", "--history", str(history)).code == 2


def test_a_bad_history_is_reported_in_lines_and_by_the_exit_code(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history") as recorder:
        for event in [Began("orders"), *BAD["lost"]]:
            recorder.record(event)
    result = headrace("verify", "check", str(tmp_path / "history"))
    assert result.code == 1
    assert result.out.splitlines()[0] == "lost: a:2 was acknowledged with the receipt (0, 2)"
    assert result.out.splitlines()[1] == "lost means: an acknowledged message does not exist"
    assert result.out.splitlines()[-1].startswith("violated: 1 lost (3 messages acknowledged")


def test_a_history_that_proves_nothing_is_no_success(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history") as recorder:
        recorder.record(Began("orders"))
    result = headrace("verify", "check", str(tmp_path / "history"))
    assert result.code == 1 and result.out.startswith("inconclusive: ")


def test_wrong_usage(tmp_path: Path) -> None:
    assert "--producers is 0: it must be 1 to 100" in headrace("verify", "--producers", "0").refused(2)
    assert "No such file" in headrace("verify", "check", str(tmp_path / "nothing")).refused(2)
    (tmp_path / "other").write_text("{}\n")
    assert "it is not an event" in headrace("verify", "check", str(tmp_path / "other")).refused(2)


def test_no_server() -> None:
    refused = headrace("verify", "--json", "--seconds", "1", "--url", "headrace://127.0.0.1:1", "--patience", "0.2")
    assert refused.code == 3


def test_a_wrong_address_is_wrong_usage_and_no_violation() -> None:
    assert "--url" in headrace("verify", "--url", "http://127.0.0.1:7070", "--seconds", "1").refused(2)

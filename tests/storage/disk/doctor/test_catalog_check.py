"""Rows of the catalog that break a rule, and a file that is no database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.disk.doctor.damaged_stores import Patient

GROUP = "INSERT INTO all_groups VALUES (1, 'billing', NULL, 0, '\"earliest\"', 0, 0)"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE all_topics SET topickey = 'other'", "it is not that of the topic's name"),
        ("UPDATE all_topics SET topicname = ''", "1 to 255 characters"),
        ("UPDATE all_topics SET topicname = x'00ff'", "it has the wrong type"),
        ("UPDATE all_topics SET partitions = 0", "from 1 to 10000"),
        ("UPDATE all_topics SET settings = '{'", "truncated"),
        ("UPDATE all_topics SET settings = '{\"retention_seconds\": -1}'", "retention_seconds"),
        ("UPDATE all_topics SET deleted_before = '[1, 1, 1]'", "there are 2 partitions"),
        ("UPDATE all_topics SET deleted_before = '[\"x\"]'", "Expected `int`"),
        ("INSERT INTO all_groups VALUES (1, 'b', NULL, 0, '-1', 0, 0)", "read_from"),
        ("INSERT INTO all_groups VALUES (1, '', NULL, 0, '0', 0, 0)", "group name"),
        ("INSERT INTO all_tokens VALUES ('id', 'name', 'hash', '[1]', 0, NULL, 5, NULL, 9)", "tokenid 'id'"),
        (
            "INSERT INTO all_tokens VALUES ('id', 'name', 'hash', '[]', 0, NULL, 5, '{}', NULL)",
            "tokenid 'id': Object missing",
        ),
        ("INSERT INTO all_consumers VALUES (1, 'nobody', 0, 0, NULL, NULL, NULL)", "there is no such group"),
        ("INSERT INTO all_consumers VALUES (2, 'nobody', 0, 0, NULL, NULL, NULL)", "there is no such group"),
        ("INSERT INTO all_consumers VALUES (1, 'billing', 2, 0, NULL, NULL, NULL)", "the topic has 2 partitions"),
        ("INSERT INTO all_consumers VALUES (1, 'billing', 0, 'x', NULL, NULL, NULL)", "it has the wrong type"),
        ("INSERT INTO all_consumers VALUES (1, 'billing', 0, 0, 0, 0, 'text')", "it has the wrong type"),
        ("INSERT INTO all_archives VALUES (1, 0, '{}', 0, NULL, 0, 0)", "all_archives, topicid 1: Expected `array`"),
        ("INSERT INTO all_archives VALUES (1, 0, 7, 0, NULL, 0, 'x')", "it has the wrong type"),
    ],
)
def test_rows_that_break_a_rule(tmp_path: Path, statement: str, told: str) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql(
        GROUP, "INSERT INTO all_tokens VALUES ('good', 'n', 'hash', '[]', 0, NULL, NULL, NULL, NULL)", statement
    )
    findings = patient.examine().findings
    assert findings and findings[0].kind == "damage"
    assert findings[0].file.endswith("catalog.sqlite")
    assert told in findings[0].what
    assert "hash" not in findings[0].what


def test_a_catalog_of_before_the_archive(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql("UPDATE headrace_catalog SET version = 2", "DROP TABLE all_archives")
    assert patient.found() == []


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    (patient.directory / "catalog.sqlite").write_bytes(b"no database " * 1000)
    assert "not a database" in patient.told()


def test_a_database_with_a_damaged_page(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    path = patient.directory / "catalog.sqlite"
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    path.write_bytes(content)
    report = patient.examine()
    assert report.is_damaged
    assert report.messages == 2

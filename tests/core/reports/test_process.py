"""The report of a process travels as JSON."""

from __future__ import annotations

import msgspec

from headrace.core.reports.process import ProcessReport


def test_a_report_travels_as_json() -> None:
    given = ProcessReport("9f86d081884c", 4711, {"python": "3.11"}, {"main (1)": "File …"}, ["a line"])
    assert msgspec.json.decode(msgspec.json.encode(given), type=ProcessReport) == given

"""The table of metrics: its names, its page in the documentation, and the reader of the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.wire.metrics import METRICS, Sample, parse

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_the_rules_of_prometheus(name: str) -> None:
    metric = METRICS[name]
    assert name.startswith("headrace_") and name == name.lower()
    assert name.endswith("_total") == (metric.kind == "counter")
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert not metric.help.endswith("."), "no full stop, as in the rest of them"
    assert "\n" not in metric.help and "\\" not in metric.help, "they would need escapes"


def test_the_documentation_has_every_metric() -> None:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"
        for metric in METRICS.values()
    ]
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `headrace_")]
    assert found == rows, "\n".join(["docs/metrics.md should have:", *rows])


def test_text_is_read_as_the_library_reads_it() -> None:
    text = "\n".join(
        [
            "# HELP a Something",
            "# TYPE a gauge",
            'a{topic="x",group="a \\"b\\" \\\\ \\n}{,= 1"} 1.5',
            "a 2",
            'a{topic=""} 1e-05 1700000000000',
            "# TYPE h histogram",
            'h_bucket{le="0.1"} 1',
            'h_bucket{le="+Inf"} 2',
            "h_count 2",
            "h_sum 3.5",
            "",
        ]
    )
    expected: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for found in family.samples:
            expected.setdefault(found.name, []).append((found.labels, found.value))
    assert parse(text) == expected


def test_what_is_no_sample_is_skipped() -> None:
    assert parse("<html>\n\n404\n# comment\n{} 1\n") == {}

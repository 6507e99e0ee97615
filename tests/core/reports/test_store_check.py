"""What a report of a store amounts to."""

from __future__ import annotations

from headrace.core.reports.store_check import Finding, StoreReport


def test_damage_counts_unless_it_was_repaired() -> None:
    gap, repaired = Finding("a", 0, "gap", "lost"), Finding("a", 0, "damage", "torn", "done")
    assert not StoreReport().is_damaged
    assert not StoreReport(findings=[gap, repaired]).is_damaged
    assert StoreReport(findings=[gap, repaired, Finding("a", 9, "damage", "torn", "possible")]).is_damaged

"""Warnings that anyone may cause: a few lines a minute, then one that counts the rest."""

from __future__ import annotations

import logging

import pytest

from headrace.edge.envelope.repeated_warnings import LINES_PER_PERIOD, PERIOD_SECONDS, RepeatedWarnings


def test_lines_beyond_some_a_minute_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    warnings = RepeatedWarnings(logging.getLogger("t"), "connections were closed", lambda: now)
    for number in range(LINES_PER_PERIOD + 7):
        warnings.warn(f"number {number} of 100 %")
    warnings.summarise()
    assert len(caplog.messages) == LINES_PER_PERIOD
    now += PERIOD_SECONDS
    warnings.summarise()
    last = LINES_PER_PERIOD + 6
    assert caplog.messages[-1] == f"7 more connections were closed; the last of them: number {last} of 100 %"
    warnings.summarise()
    warnings.warn("of the next minute")
    assert caplog.messages[LINES_PER_PERIOD + 1 :] == ["of the next minute"]


def test_what_was_left_out_is_said_at_the_end_too(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("t"), "connections were closed", lambda: 1000.0)
    for _ in range(LINES_PER_PERIOD + 1):
        warnings.warn("the same")
    warnings.summarise(is_over=True)
    assert caplog.messages[-1] == "1 more connections were closed; the last of them: the same"

"""Numbers, sizes, times and addresses as people read them."""

from __future__ import annotations

import pytest

from headrace.console.view import text


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (7, "7"),
        (950.4, "950"),
        (999.7, "1.0k"),
        (1_234, "1.2k"),
        (5e6, "5.0M"),
        (2e15, "2000.0T"),
    ],
)
def test_short_numbers(number: float, shown: str) -> None:
    assert text.short_count(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(None, "–"), (0, "0 B"), (1_023.4, "1,023 B"), (1_024, "1.0 KiB"), (123_456, "120.6 KiB"), (5e12, "4.5 TiB")],
)
def test_sizes(number: float | None, shown: str) -> None:
    assert text.size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "forever"),
        (0, "0 s"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (7 * 86_400, "7 d"),
        (86_400 + 60, "1 d"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_times() -> None:
    assert text.iso(1_700_000_000_123_456) == "2023-11-14T22:13:20.123Z"
    assert text.iso(1 << 62) == ""
    assert (text.milliseconds(None), text.milliseconds(0.0123), text.milliseconds(2.0)) == ("–", "12.3 ms", "2.00 s")


def test_addresses_hold_any_name() -> None:
    assert text.topic_page("a/b?c&d=é#") == "/topic?name=a%2Fb%3Fc%26d%3D%C3%A9%23"
    assert text.group_page("t", "g\n") == "/group?topic=t&name=g%0A"
    assert text.shell("it's\x07") == "'it'\"'\"'s\\x07'"

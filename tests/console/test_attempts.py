"""How often an address may try to sign in."""

from __future__ import annotations

import pytest

from headrace.console import attempts
from headrace.console.attempts import ATTEMPTS_MAX, REFILL_SECONDS, Attempts


def test_an_address_has_some_attempts_and_gets_another_after_a_while() -> None:
    tried = Attempts()
    assert [tried.take("10.0.0.7", 100.0) for _ in range(ATTEMPTS_MAX)] == [0] * ATTEMPTS_MAX
    assert tried.take("10.0.0.7", 100.0) == REFILL_SECONDS
    assert tried.take("10.0.0.7", 100.0 + REFILL_SECONDS - 0.5) == 1
    assert tried.take("10.0.0.8", 100.0) == 0
    assert tried.take("10.0.0.7", 101.0 + REFILL_SECONDS) == 0
    assert tried.take("10.0.0.7", 101.0 + REFILL_SECONDS) > 0


def test_an_attempt_that_is_given_back_does_not_count() -> None:
    tried = Attempts()
    for _ in range(3 * ATTEMPTS_MAX):
        assert tried.take("10.0.0.7", 100.0) == 0
        tried.give_back("10.0.0.7")
    tried.give_back("10.0.0.9")
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.7", "10.0.0.7", True),
        ("testclient", "testclient", True),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(one: str, other: str, is_same: bool) -> None:
    tried = Attempts()
    for _ in range(ATTEMPTS_MAX):
        tried.take(one, 100.0)
    assert (tried.take(other, 100.0) > 0) == is_same


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ADDRESSES_MAX", 3)
    tried = Attempts()
    for number in range(10):
        tried.take(f"10.0.0.{number}", float(number))
    assert len(tried) == 3

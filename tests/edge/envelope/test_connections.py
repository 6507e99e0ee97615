"""Who is connected: strangers, callers, and the places of each."""

from __future__ import annotations

import pytest

from headrace.core.errors import LimitExceeded
from headrace.core.rights import ANYONE, EVERYTHING, Caller
from headrace.edge.envelope.connections import ConnectionPlace, Connections

ANN, TOM = Caller("ann", (EVERYTHING,)), Caller("tom", (EVERYTHING,))


class Site:
    """Twenty places: five for strangers, two of them for one address; five for each caller. Which were closed."""

    def __init__(self) -> None:
        self.connections = Connections(20)
        self.closed: list[str] = []

    def arrive(self, address: str, name: str = "") -> ConnectionPlace | None:
        return self.connections.arrive(address, lambda _: self.closed.append(name))

    def caller(self, address: str, caller: Caller) -> ConnectionPlace:
        place = self.arrive(address)
        assert place is not None
        place.sign_in(caller)
        return place


def test_the_oldest_stranger_of_an_address_makes_place_for_a_new_one() -> None:
    site = Site()
    for number in range(4):
        assert site.arrive("10.0.0.1", str(number)) is not None
    assert site.closed == ["0", "1"]
    assert len(site.connections) == 2


def test_strangers_of_many_addresses_have_a_part_of_all_places() -> None:
    site = Site()
    for number in range(7):
        site.arrive(f"10.0.0.{number}", str(number))
    assert site.closed == ["0", "1"]
    assert len(site.connections) == 5


def test_who_has_signed_in_is_never_closed_for_a_stranger() -> None:
    site = Site()
    for _ in range(3):
        site.caller("10.0.0.1", ANN)
    for _ in range(10):
        site.arrive("10.0.0.1")
    assert len(site.connections) == 5


def test_a_caller_has_a_part_of_all_places_and_leaves_the_rest_to_others() -> None:
    site = Site()
    places = [site.caller("10.0.0.1", ANN) for _ in range(5)]
    late = site.arrive("10.0.0.1")
    assert late is not None
    with pytest.raises(LimitExceeded, match=r"'ann'.*5 connections.*limits\.connections_max"):
        late.sign_in(ANN)
    late.sign_in(TOM)
    places[0].leave()
    site.caller("10.0.0.1", ANN)


def test_without_tokens_everyone_is_the_same_caller_and_may_have_all_places() -> None:
    site = Site()
    for _ in range(20):
        site.caller("127.0.0.1", ANYONE)
    assert site.arrive("127.0.0.1") is None


def test_whoever_signs_in_again_as_another_counts_as_that_one() -> None:
    site = Site()
    place = site.caller("10.0.0.1", ANN)
    place.sign_in(ANN)
    place.sign_in(TOM)
    for _ in range(5):
        site.caller("10.0.0.1", ANN)
    assert len(site.connections) == 6


def test_a_place_is_given_up_once() -> None:
    site = Site()
    known, stranger = site.caller("10.0.0.1", ANN), site.arrive("10.0.0.1")
    assert stranger is not None
    for place in (known, known, stranger, stranger):
        place.leave()
    assert len(site.connections) == 0


def test_a_stranger_that_was_closed_may_have_signed_in_just_then() -> None:
    site = Site()
    first = site.arrive("10.0.0.1", "first")
    site.arrive("10.0.0.1")
    site.arrive("10.0.0.1")
    assert first is not None and site.closed == ["first"]
    first.sign_in(ANN)
    assert len(site.connections) == 3
    first.leave()
    assert len(site.connections) == 2

"""Tokens: made and revoked by another process, with an end, rotated, and when they were last used."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.broker.access import Access
from headrace.core.errors import InvalidInput, Unauthenticated
from headrace.core.rights import ANYONE, Right
from headrace.storage.interface import Store
from headrace.storage.open import open_store
from headrace.storage.tokens import TokenRecord
from tests.broker.clock import SettableClock

DAY_SECONDS = 86_400


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory:")
    yield opened
    opened.close()


def test_a_token_that_another_process_revoked_is_out_within_a_second(store: Store) -> None:
    here, elsewhere = Access(store.catalog), Access(store.catalog)
    record, token = elsewhere.create("till", [("*", ["read"])])
    assert here.authenticate(token).name == "till"
    assert elsewhere.revoke(record.id)
    assert here._fresh_until - time.monotonic() <= 1.0
    # That second is over.
    here.forget()
    elsewhere.create("other", [("*", ["read"])])
    with pytest.raises(Unauthenticated):
        here.authenticate(token)


def test_a_producer_id_belongs_to_the_tokens_that_name_it_until_they_are_revoked(store: Store) -> None:
    clock = SettableClock()
    here, elsewhere = Access(store.catalog, clock), Access(store.catalog, clock)
    _, admin = here.create("admin", [("*", list(Right))])
    _, other = here.create("other", [("*", ["publish", "read"])])

    def may(token: str) -> bool:
        here.forget()
        return here.authenticate(token).may(Right.PUBLISH, "orders", producer="till-7")

    assert may(other)
    version = here.version
    first, till = elsewhere.create("till", [("orders", ["publish"])], producers=["till-7"], life_seconds=DAY_SECONDS)
    assert may(till) and not may(other)
    assert may(admin), "it could create a token with this name"
    assert here.version > version, "who holds a lease is asked again"
    second, till, _ = elsewhere.rotate("till", 0)
    assert may(till) and not may(other)
    clock.step(DAY_SECONDS)
    assert not may(other), "the owner gets a new token, and its id was nobody's meanwhile"
    for record in (first, second):
        elsewhere.revoke(record.id)
    assert may(other)


@pytest.mark.parametrize("change", ["create", "revoke"])
def test_a_change_while_the_tokens_are_read_counts_at_once(
    store: Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(store.catalog, must_authenticate=True)
    record, token = access.create("till", [("*", ["read"])])
    read, later = store.catalog.tokens.all, list[str]()

    def overtaken() -> list[TokenRecord]:
        found = read()
        monkeypatch.undo()
        if change == "revoke":
            assert access.revoke(record.id)
        else:
            later.append(access.create("later", [("*", ["read"])])[1])
        return found

    monkeypatch.setattr(store.catalog.tokens, "all", overtaken)
    access.refresh()
    if change == "revoke":
        with pytest.raises(Unauthenticated):
            access.authenticate(token)
    else:
        assert access.authenticate(later[0]).name == "later"


def test_a_token_ends(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    record, token = access.create("till", [("*", ["read"])], life_seconds=90 * DAY_SECONDS)
    assert record.expires_us == clock.now_us() + 90 * DAY_SECONDS * 1_000_000
    clock.step(90 * DAY_SECONDS - 1)
    caller = access.authenticate(token)
    assert (caller.token_id, caller.expires_us) == (record.id, record.expires_us)
    access.refresh()
    before = access.version
    clock.step(1)
    with pytest.raises(Unauthenticated, match="expired"):
        access.authenticate(token)
    # Whoever holds a lease learns of it, and the server does not open to everyone.
    access.forget()
    access.refresh()
    assert access.version > before and not access.is_open()
    with pytest.raises(Unauthenticated):
        access.authenticate(None)


def test_the_first_token_may_leave_time_to_those_without_one(store: Store) -> None:
    clock = SettableClock()
    access, elsewhere = Access(store.catalog, clock), Access(store.catalog, clock)
    strict = Access(store.catalog, clock, must_authenticate=True)
    assert access.grace_until_us() is None, "without tokens there is nothing to wait for"
    record, token = access.create("admin", [("*", list(Right))], grace_seconds=600)
    elsewhere.create("till", [("*", ["read"])])
    assert record.grace_until_us == clock.now_us() + 600_000_000
    for each in (access, elsewhere):
        assert each.is_open() and each.grace_until_us() == record.grace_until_us
        assert each.authenticate(None) == each.authenticate(None, "nobody") == ANYONE
        assert each.authenticate(token).name == "admin"
        assert each.authenticate(None, "till").name == "till"
        with pytest.raises(Unauthenticated, match="unknown"):
            each.authenticate("hr_wrong_token")
    assert not strict.is_open() and strict.grace_until_us() is None
    with pytest.raises(Unauthenticated):
        strict.authenticate(None)
    clock.step(600)
    for each in (access, elsewhere):
        before = each.version
        assert not each.is_open() and each.grace_until_us() is None
        with pytest.raises(Unauthenticated, match="no token was sent"):
            each.authenticate(None)
        with pytest.raises(Unauthenticated, match="client certificate, 'nobody'"):
            each.authenticate(None, "nobody")
        each.forget()
        each.refresh()
        assert each.version > before, "who holds a lease is asked again"


def test_the_time_for_those_without_a_token_ends_with_the_token_that_gave_it(store: Store) -> None:
    access = Access(store.catalog)
    record, _ = access.create("admin", [("*", list(Right))], grace_seconds=600)
    with pytest.raises(InvalidInput, match="only the first token"):
        access.create("second", [("*", list(Right))], grace_seconds=600)
    access.create("second", [("*", list(Right))])
    access.rotate("admin", keep_seconds=0)
    assert access.authenticate(None) == ANYONE, "rotating is no reason to refuse anyone"
    before = access.version
    access.revoke(record.id)
    with pytest.raises(Unauthenticated):
        access.authenticate(None)
    assert access.version > before


def test_the_time_for_those_without_a_token_does_not_come_back_with_an_old_clock(store: Store) -> None:
    clock = SettableClock()
    Access(store.catalog, clock).create("admin", [("*", list(Right))], grace_seconds=600)
    clock.step(-60)
    assert Access(store.catalog, clock).is_open(), "clocks of two processes may differ a little"
    clock.step(-1)
    started = Access(store.catalog, clock)
    assert not started.is_open() and started.grace_until_us() is None
    with pytest.raises(Unauthenticated, match="no token was sent"):
        started.authenticate(None)


@pytest.mark.parametrize("seconds", [0.5, -1, 8 * DAY_SECONDS, float("nan")])
def test_the_time_for_those_without_a_token_is_bounded(store: Store, seconds: float) -> None:
    with pytest.raises(InvalidInput, match="1 second to 7 days") as caught:
        Access(store.catalog).create("till", [("*", ["read"])], grace_seconds=seconds)
    assert caught.value.field == "grace"


@pytest.mark.parametrize("seconds", [0, -1, 1e12, float("nan")])
def test_an_end_must_be_ahead(store: Store, seconds: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        Access(store.catalog).create("till", [("*", ["read"])], life_seconds=seconds)
    assert caught.value.field == "expires"


def test_rotation_keeps_both_tokens_for_a_while(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    _, old = access.create("till", [("a", ["read"])], ["g"], ["p"], life_seconds=DAY_SECONDS)
    clock.step(3_600)
    record, new, replaced = access.rotate("till", keep_seconds=600)
    assert [token.name for token in replaced] == ["till"]
    assert record.expires_us == clock.now_us() + DAY_SECONDS * 1_000_000, "it lives as long as the old one would have"
    assert access.authenticate(old).grants == access.authenticate(new).grants
    clock.step(600)
    with pytest.raises(Unauthenticated, match="expired"):
        access.authenticate(old)
    assert access.authenticate(new).name == "till"
    # Rotating again by the id leaves what has ended alone.
    again, _, replaced = access.rotate(record.id, keep_seconds=0, life_seconds=60)
    assert [token.id for token in replaced] == [record.id]
    assert again.expires_us == clock.now_us() + 60_000_000
    with pytest.raises(Unauthenticated):
        access.authenticate(new)


def test_rotation_never_gives_more_time_or_other_rights(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    short, _ = access.create("till", [("a", ["read"])], life_seconds=60)
    access.rotate("till", keep_seconds=3_600)
    assert {token.id: token.expires_us for token in access.list()}[short.id] == short.expires_us
    access.create("till", [("b", [Right.MANAGE])])
    with pytest.raises(InvalidInput, match="give the id of one"):
        access.rotate("till", keep_seconds=0)
    for name, keep_seconds in (("nobody", 0), ("till", -1)):
        with pytest.raises(InvalidInput):
            access.rotate(name, keep_seconds)


def test_the_last_use_is_stored_now_and_then(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    _, token = access.create("till", [("*", ["read"])])

    def used_us() -> int:
        access.store_uses()
        return access.list()[0].used_us or 0

    assert used_us() == 0
    access.authenticate(token)
    first_us = clock.now_us()
    assert used_us() == first_us
    clock.step(59)
    access.authenticate(token)
    assert used_us() == first_us
    before = access.version
    clock.step(1)
    access.authenticate(token)
    assert used_us() == clock.now_us()
    access.forget()
    access.refresh()
    assert access.version == before, "a use changes nothing for those who hold a lease"


def test_tokens_of_a_broker_can_be_required(store: Store) -> None:
    access = Access(store.catalog)
    assert access.is_open()
    access.require_tokens()
    assert not access.is_open()
    with pytest.raises(Unauthenticated):
        access.authenticate(None)


def test_uses_that_cannot_be_stored_do_no_harm(store: Store) -> None:
    access = Access(store.catalog)
    _, token = access.create("till", [("*", ["read"])])
    access.authenticate(token)
    store.close()
    access.store_uses()
    assert access.authenticate(token).name == "till"


def test_a_certificate_has_the_grants_of_the_newest_valid_token_of_its_name(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    assert access.authenticate(None, "till").name == "anyone", "there are no tokens yet"
    first, _ = access.create("till", [("a", ["read"])])
    clock.step(1)
    second, _ = access.create("till", [("b", ["read"])], life_seconds=60)
    _, other = access.create("other", [("*", ["manage"])])
    caller = access.authenticate(None, "till")
    assert (caller.name, caller.token_id, caller.expires_us) == ("till", second.id, second.expires_us)
    assert caller.may(Right.READ, "b") and not caller.may(Right.READ, "a")
    assert access.has_uses
    assert access.authenticate(other, "till").name == "other", "a token that is sent counts"
    clock.step(61)
    assert access.authenticate(None, "till").token_id == first.id
    access.revoke(first.id)
    for name in ("till", "Till", "*", "other "):
        with pytest.raises(Unauthenticated, match="no valid token has the name"):
            access.authenticate(None, name)
    for nothing in (None, ""):
        with pytest.raises(Unauthenticated, match="no token was sent"):
            access.authenticate(nothing, nothing)
    with pytest.raises(Unauthenticated, match="unknown"):
        access.authenticate("hr_wrong_token", "other")


def test_a_token_is_about_to_expire_in_the_last_tenth_of_its_life(store: Store) -> None:
    clock = SettableClock()
    access = Access(store.catalog, clock)
    access.create("forever", [("*", ["read"])])
    access.create("year", [("*", ["read"])], life_seconds=365 * DAY_SECONDS)
    access.create("day", [("*", ["read"])], life_seconds=DAY_SECONDS)
    assert access.counts() == (3, 0)
    clock.step(0.95 * DAY_SECONDS)
    assert access.counts() == (3, 1)
    clock.step(DAY_SECONDS)
    assert access.counts() == (2, 0), "it has expired"
    clock.step(355 * DAY_SECONDS)
    assert access.counts() == (2, 0), "a week ahead is early enough"
    clock.step(2 * DAY_SECONDS)
    assert access.counts() == (2, 1)
    access.rotate("year", keep_seconds=3_600)
    assert access.counts() == (3, 0), "its successor lives longer"


def test_a_lent_token_is_of_one_process_and_no_token_of_the_store(store: Store) -> None:
    clock = SettableClock()
    here, elsewhere = Access(store.catalog, clock), Access(store.catalog, clock)
    lent = here.lend("console", [("*", ["read"])])
    assert here.is_open() and here.list() == [], "it shuts nobody out"
    here.create("admin", [("*", list(Right))])
    assert not here.is_open()
    clock.step(DAY_SECONDS)
    caller = here.authenticate(lent)
    assert caller.name == "console" and caller.may(Right.READ, "orders") and not caller.may(Right.PUBLISH, "orders")
    assert not here.has_uses, "its use is not stored"
    elsewhere.forget()
    for access, token in ((elsewhere, lent), (here, lent + "x")):
        with pytest.raises(Unauthenticated):
            access.authenticate(token)

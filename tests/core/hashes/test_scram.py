"""SCRAM: the example of RFC 7677, and what is refused."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from headrace.core.hashes.scram import HASHES, BadScram, ScramExchange, secret_of
from headrace.core.limits import SCRAM_NONCE_BYTES_MAX

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def challenged(password: str = "pencil", first: bytes = FIRST) -> ScramExchange:
    exchange = ScramExchange("SCRAM-SHA-256", first)
    exchange.challenge(secret_of(password, SALT), NONCE)
    return exchange


def test_the_example_of_the_standard() -> None:
    exchange = ScramExchange("SCRAM-SHA-256", FIRST)
    assert exchange.user == "user"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.challenge(secret_of("pencil", SALT), NONCE) == challenge
    assert exchange.signature(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_another_password_is_not_proven() -> None:
    assert challenged("pencils").signature(FINAL) is None


def test_nothing_that_is_stored_is_the_password_or_the_same_for_another_salt() -> None:
    one, other = secret_of("pencil", SALT), secret_of("pencil", b"another")
    assert set(one.keys) == set(HASHES)
    for mechanism in HASHES:
        assert {one.keys[mechanism].stored, one.keys[mechanism].server}.isdisjoint(
            {other.keys[mechanism].stored, other.keys[mechanism].server, b"pencil"}
        )


def test_names_may_have_commas_and_equal_signs() -> None:
    assert ScramExchange("SCRAM-SHA-512", b"y,,n=a=2Cb=3D,r=x").user == "a,b="


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,r=x,n=user",
        b"n,,n=user,x=r",
        b"n,,n=user,r=",
        b"n,,n=user,r=" + b"x" * (SCRAM_NONCE_BYTES_MAX + 1),
    ],
)
def test_first_messages_that_are_none(first: bytes) -> None:
    with pytest.raises(BadScram):
        ScramExchange("SCRAM-SHA-256", first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b",p=", b",q="),
        b"c=biws,p=AAAA",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"r=rO", b"r=rP"),
        FINAL.replace(b"c=", b"d="),
        FINAL.replace(b"r=rO", b"s=rO"),
        FINAL[:-3] + b"!!!",
        FINAL.rpartition(b"p=")[0] + b"p=" + b64encode(b"short"),
    ],
)
def test_last_messages_that_are_none(final: bytes) -> None:
    with pytest.raises(BadScram):
        challenged().signature(final)

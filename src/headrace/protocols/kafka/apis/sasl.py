"""SASL: who a connection belongs to.

PLAIN          a token as password; the user name may be anything
OAUTHBEARER    a token as it is, which is what our tokens are made for
SCRAM-SHA-…    the id of a token as user name, and the token as password, which is proven and not sent
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker.access import ProvenToken
from headrace.core.hashes.scram import HASHES, BadScram, ScramExchange, ScramKeys, ScramSecret
from headrace.core.limits import SCRAM_ITERATIONS, SCRAM_SALT_BYTES

MECHANISMS: Final = ("PLAIN", "OAUTHBEARER", *HASHES)
_BEARER: Final = b"auth=Bearer "
# Far more than a token and what comes with it.
_LOGIN_BYTES_MAX: Final = 16 << 10
# Whoever guesses ids of tokens is answered as if there were one: with a salt that stays the same for an id.
_GUESSED_KEY: Final = secrets.token_bytes(32)

# What a client has to prove for a token, by its id, and what it has then.
ScramOf = Callable[[str], tuple[ScramSecret, ProvenToken] | None]


class Login:
    """The state of a connection's login."""

    def __init__(self, scram_of: ScramOf) -> None:
        self.token: str | ProvenToken | None = None
        self._scram_of = scram_of
        self._mechanism: str | None = None
        # A SCRAM exchange that waits for the client's last message, and the token that it is about.
        self._exchange: tuple[ScramExchange, ProvenToken] | None = None

    def shake_hands(self, mechanism: str) -> dict[str, Any]:
        """Agree on a mechanism."""
        is_known = mechanism in MECHANISMS
        self._mechanism = mechanism if is_known else None
        self._exchange = None
        code = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": code, "mechanisms": list(MECHANISMS)}

    def authenticate(self, data: bytes) -> dict[str, Any]:
        """Take what the client sends; whether the token is good is for the gate to say."""
        if self._mechanism is None:
            return refused("send SaslHandshake first", ErrorCode.illegal_sasl_state)
        if len(data) > _LOGIN_BYTES_MAX:
            return refused(f"{len(data)} bytes were sent: at most {_LOGIN_BYTES_MAX} are accepted")
        if self._mechanism in HASHES:
            try:
                return _accepted(self._scram(self._mechanism, data))
            except BadScram as error:
                self._exchange = None
                return refused(f"what was sent is not {self._mechanism}: {error}")
        token = _plain(data) if self._mechanism == "PLAIN" else _bearer(data)
        if token is None:
            return refused(f"what was sent is not {self._mechanism}")
        self.token = token
        return _accepted(b"")

    def _scram(self, mechanism: str, data: bytes) -> bytes:
        """The next message of an exchange; after the last one there is a token, if only one that nobody has."""
        if self._exchange is None:
            exchange = ScramExchange(mechanism, data)
            secret, token = self._scram_of(exchange.user) or _unknown(exchange.user)
            self._exchange = exchange, token
            return exchange.challenge(secret, secrets.token_urlsafe(18).encode())
        (exchange, token), self._exchange = self._exchange, None
        signature = exchange.signature(data)
        self.token = ProvenToken(token.id, "") if signature is None else token
        return signature or b""


def refused(reason: str, code: ErrorCode = ErrorCode.sasl_authentication_failed) -> dict[str, Any]:
    """The answer to a login that failed."""
    return {"error_code": code, "error_message": reason}


def _accepted(data: bytes) -> dict[str, Any]:
    return {"error_code": ErrorCode.none, "auth_bytes": data, "session_lifetime": 0}


def _unknown(user: str) -> tuple[ScramSecret, ProvenToken]:
    """What nobody can prove."""
    salt = hmac.digest(_GUESSED_KEY, user.encode(errors="replace"), "sha256")[:SCRAM_SALT_BYTES]
    keys = {mechanism: ScramKeys(secrets.token_bytes(32), b"") for mechanism in HASHES}
    return ScramSecret(salt, SCRAM_ITERATIONS, keys), ProvenToken("", "")


def _plain(data: bytes) -> str | None:
    """The password of `authorization id NUL user NUL password`."""
    parts = data.split(b"\x00")
    return parts[2].decode(errors="replace") if len(parts) == 3 else None


def _bearer(data: bytes) -> str | None:
    """The token of `n,,^Aauth=Bearer TOKEN^A^A`."""
    for part in data.split(b"\x01"):
        if part.startswith(_BEARER):
            return part[len(_BEARER) :].decode(errors="replace")
    return None

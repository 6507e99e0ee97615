"""SASL: who a connection belongs to. PLAIN with a token as password; the user name may be anything.

OAUTHBEARER sends a token as it is, which is what our tokens are made for.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

MECHANISMS: Final = ("PLAIN", "OAUTHBEARER")
_BEARER: Final = b"auth=Bearer "
# Far more than a token and what comes with it.
_LOGIN_BYTES_MAX: Final = 16 << 10


class Login:
    """The state of a connection's login."""

    def __init__(self) -> None:
        self.token: str | None = None
        self._mechanism: str | None = None

    def shake_hands(self, mechanism: str) -> dict[str, Any]:
        """Agree on a mechanism."""
        is_known = mechanism in MECHANISMS
        self._mechanism = mechanism if is_known else None
        code = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": code, "mechanisms": list(MECHANISMS)}

    def authenticate(self, data: bytes) -> dict[str, Any]:
        """Take the token that the client sends; whether it is good is for the gate to say."""
        if self._mechanism is None:
            return refused("send SaslHandshake first", ErrorCode.illegal_sasl_state)
        if len(data) > _LOGIN_BYTES_MAX:
            return refused(f"{len(data)} bytes were sent: at most {_LOGIN_BYTES_MAX} are accepted")
        token = _plain(data) if self._mechanism == "PLAIN" else _bearer(data)
        if token is None:
            return refused(f"what was sent is not {self._mechanism}")
        self.token = token
        return {"error_code": ErrorCode.none, "auth_bytes": b"", "session_lifetime": 0}


def refused(reason: str, code: ErrorCode = ErrorCode.sasl_authentication_failed) -> dict[str, Any]:
    """The answer to a login that failed."""
    return {"error_code": code, "error_message": reason}


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

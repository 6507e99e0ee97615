"""SCRAM (RFC 5802, RFC 7677): what is stored of a password, and the server's side of an exchange.

    client  n,,n=USER,r=NONCE                  server  r=NONCE+OURS,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+OURS,p=PROOF        server  v=SIGNATURE

Neither the password nor anything that stands for it is sent or stored. There is no channel binding. Pure: nonces and
salts are given.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

import msgspec

from headrace.core.limits import SCRAM_ITERATIONS, SCRAM_NONCE_BYTES_MAX

# By mechanism the hash.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class BadScram(ValueError):
    """What was sent is not the message that comes next."""


class ScramKeys(msgspec.Struct, frozen=True):
    """What is stored for one mechanism."""

    stored: bytes
    server: bytes


class ScramSecret(msgspec.Struct, frozen=True):
    """What is stored of a password, by mechanism."""

    salt: bytes
    iterations: int
    keys: dict[str, ScramKeys]


def secret_of(password: str, salt: bytes, iterations: int = SCRAM_ITERATIONS) -> ScramSecret:
    """What to store of a password."""
    keys = {}
    for mechanism, name in HASHES.items():
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        client = hmac.digest(salted, b"Client Key", name)
        keys[mechanism] = ScramKeys(hashlib.new(name, client).digest(), hmac.digest(salted, b"Server Key", name))
    return ScramSecret(salt, iterations, keys)


class ScramExchange:
    """One login."""

    def __init__(self, mechanism: str, first: bytes) -> None:
        """Read the client's first message."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        flag, _, rest = first.partition(b",")
        identity, _, self._bare = rest.partition(b",")
        fields = self._bare.split(b",")
        # An empty name to act as is allowed, and no other.
        if flag not in (b"n", b"y") or identity or len(fields) < 2:
            raise BadScram("it must begin with n,,n=USER,r=NONCE")
        self.user = _named(fields[0], b"n=").decode(errors="replace").replace("=2C", ",").replace("=3D", "=")
        self._nonce = _named(fields[1], b"r=")
        self._gs2 = b64encode(flag + b",,")
        if not 0 < len(self._nonce) <= SCRAM_NONCE_BYTES_MAX:
            raise BadScram(f"the nonce has {len(self._nonce)} bytes: it must have 1 to {SCRAM_NONCE_BYTES_MAX}")

    def challenge(self, secret: ScramSecret, nonce: bytes) -> bytes:
        """The server's first message; the nonce must never be the same again."""
        self._nonce += nonce
        self._keys = secret.keys[self._mechanism]
        self._challenge = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(secret.salt), secret.iterations)
        return self._challenge

    def signature(self, final: bytes) -> bytes | None:
        """The server's last message, after the client's; None if the client does not know the password."""
        message, separator, proof = final.rpartition(b",p=")
        fields = message.split(b",")
        if not separator or len(fields) < 2:
            raise BadScram("it must be c=biws,r=NONCE,p=PROOF")
        if _named(fields[0], b"c=") != self._gs2 or _named(fields[1], b"r=") != self._nonce:
            raise BadScram("it belongs to another exchange")
        signed = b",".join((self._bare, self._challenge, message))
        expected = hmac.digest(self._keys.stored, signed, self._hash)
        try:
            proven = b64decode(proof, validate=True)
        except ValueError:
            raise BadScram("the proof is not base64") from None
        if len(proven) != len(expected):
            raise BadScram("the proof has the wrong length")
        client = bytes(left ^ right for left, right in zip(proven, expected, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client).digest(), self._keys.stored):
            return None
        return b"v=" + b64encode(hmac.digest(self._keys.server, signed, self._hash))


def _named(field: bytes, name: bytes) -> bytes:
    if not field.startswith(name):
        raise BadScram(f"{name.decode()} is missing")
    return field[len(name) :]

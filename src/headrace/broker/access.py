"""Access tokens, checked in one place for every protocol.

A token is `hr_<id>_<secret>`. Only a hash of the secret is stored, in the catalog; the token itself is shown once, when
it is created. Without any tokens everyone has full access, so a server without tokens listens on loopback only, and a
server that other machines can reach denies everyone once its last token is revoked. Tokens are read again every second,
so changes by another process take effect within that time.

The first token of a store may come with a grace period, stored with it: until its end callers without a token are
served as before, except by servers that require tokens anyway. A wrong token is refused at once. A clock that says that
the token was not created yet is wrong, and opens nothing.

A client may prove by SCRAM that it knows a token, without sending it: the keys for that are stored when a token is
created.

A token may expire. Rotating creates a new token of the same name and sets an expiry on the old one, so that both are
valid for a while. The time of last use is stored about once a minute; a failure to do so is harmless.

A producer id that a token names belongs to the tokens that name it, until the last of them is revoked: `core.rights`
has the rule.

A server lends a token to a process that it starts, such as its console: it is in memory only.

A caller with a client certificate that the edge has verified, and without a token, has the grants of the newest valid
token of the certificate's name. Nobody needs to know that token's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.broker.clock import Clock, SystemClock
from headrace.core.errors import HeadraceError, InvalidInput, Unauthenticated
from headrace.core.hashes.scram import ScramSecret, secret_of
from headrace.core.health.rules import EXPIRED_SECONDS_MAX, ends_soon
from headrace.core.limits import GRACE_SECONDS_MAX, MICROSECONDS, SCRAM_SALT_BYTES
from headrace.core.names import check_id
from headrace.core.reports.descriptions import TokenDescription
from headrace.core.rights import ALL, ANYONE, NO_OWNERS, Caller, Grant, ProducerOwners, check_grants, has_full_access
from headrace.storage.catalog import Catalog
from headrace.storage.tokens import TokenRecord

_PREFIX: Final = "hr"
_FRESH_SECONDS: Final = 1.0
# By how much the clock of another process that created a token may be ahead.
_AHEAD_SECONDS: Final = 60
_USE_SECONDS: Final = 60
# A token lives at most a hundred years, and is never created expired.
_LIFE_SECONDS_MAX: Final = 100 * 365 * 86_400

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProvenToken:
    """A token that a client has proven to know without sending it; an empty hash is that of none."""

    id: str
    secret_hash: str


class Access:
    """The tokens of a store. Thread-safe.

    Locks: `_lock` (one reading of the store at a time), then `_fresh_lock`, which is held briefly.
    """

    def __init__(self, catalog: Catalog, clock: Clock | None = None, must_authenticate: bool = False) -> None:
        self._catalog = catalog
        self._must_authenticate = must_authenticate
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tokens: dict[str, TokenRecord] = {}
        self._looked_us = 0
        self._has_tokens = False
        self._grace_until_us = 0
        self._owners = NO_OWNERS
        self._grants: frozenset[Grant] = frozenset()
        self._fresh_lock = threading.Lock()
        self._fresh_until = 0.0
        # How often the tokens were changed here.
        self._changes = 0
        # The unstored times of last use by token, and when they were last stored.
        self._uses: dict[str, int] = {}
        self._stored_uses: dict[str, int] = {}
        # Tokens of this process, by id.
        self._lent: dict[str, TokenRecord] = {}
        # Incremented whenever the tokens change.
        self.version = 0

    def require_tokens(self) -> None:
        """Require a token from now on, even if the last one is revoked."""
        self._must_authenticate = True

    def lend(self, name: str, grants: Iterable[tuple[str, Iterable[str]]]) -> str:
        """A token that is stored nowhere, and ends with this process: for a process that it starts.

        It does not count as a token of the store: the first one of those is still the first.
        """
        record, text = self._new(check_id("token name", name), check_grants(grants, ALL, ALL, False), None)
        self._lent[record.id] = record
        return text

    def is_open(self) -> bool:
        """Whether callers without a token have full access: there are no tokens, or their grace period lasts."""
        self._known()
        return not self._must_authenticate and (not self._has_tokens or self._clock.now_us() < self._grace_until_us)

    def grace_until_us(self) -> int | None:
        """Until when callers without a token are served although there are tokens; None if they are not."""
        return self._grace_until_us if self.is_open() and self._has_tokens else None

    def authenticate(self, token: str | ProvenToken | None, certificate_name: str | None = None) -> Caller:
        """The caller of this token, or, without one, of a verified certificate of this name."""
        known = self._known()
        if not self._has_tokens and not self._must_authenticate:
            return ANYONE
        if not token:
            return self._without_token(known, certificate_name)
        proven = token if isinstance(token, ProvenToken) else _given(token)
        record = None if proven is None else known.get(proven.id) or self._lent.get(proven.id)
        expected = record.secret_hash if record is not None else _hashed("")
        is_right = hmac.compare_digest("" if proven is None else proven.secret_hash, expected)
        if record is None or not is_right:
            raise Unauthenticated("the token is unknown or revoked")
        if _has_ended(record, self._clock.now_us()):
            raise Unauthenticated("the token has expired")
        return self._admitted(record)

    def _without_token(self, known: dict[str, TokenRecord], certificate_name: str | None) -> Caller:
        record = self._named(known, certificate_name) if certificate_name else None
        if record is not None:
            return self._admitted(record)
        if self.is_open():
            return ANYONE
        if certificate_name:
            raise Unauthenticated(f"no valid token has the name of the client certificate, {certificate_name[:100]!r}")
        raise Unauthenticated("no token was sent")

    def scram(self, token_id: str) -> tuple[ScramSecret, ProvenToken] | None:
        """What a client has to prove for a token, and what it has then; None if there is no such token for SCRAM."""
        record = self._known().get(token_id)
        if record is None or record.scram is None:
            return None
        return record.scram, ProvenToken(record.id, record.secret_hash)

    def _named(self, known: dict[str, TokenRecord], name: str) -> TokenRecord | None:
        """The newest valid token of a name, if there is one."""
        now_us = self._clock.now_us()
        named = [token for token in known.values() if token.name == name and not _has_ended(token, now_us)]
        return max(named, key=lambda token: (token.created_us, token.id), default=None)

    def _admitted(self, record: TokenRecord) -> Caller:
        now_us = self._clock.now_us()
        is_stored = record.id not in self._lent
        if is_stored and now_us - self._stored_uses.get(record.id, 0) >= _USE_SECONDS * MICROSECONDS:
            self._uses[record.id] = now_us
        # One who can create tokens could name any id.
        owners = NO_OWNERS if has_full_access(record.grants) else self._owners
        return Caller(record.name, record.grants, record.id, record.expires_us, owners)

    def create(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ALL,
        producers: Iterable[str] = ALL,
        life_seconds: float | None = None,
        forward_only: bool = False,
        grace_seconds: float | None = None,
    ) -> tuple[TokenRecord, str]:
        """Create a token; its text is returned only here. Without `life_seconds` it never expires.

        With `grace_seconds`, which only the first token may have, callers without a token are served that much longer.
        """
        checked = check_grants(grants, groups, producers, forward_only)
        record, text = self._new(check_id("token name", name), checked, life_seconds)
        if grace_seconds is not None:
            if not 1 <= grace_seconds <= GRACE_SECONDS_MAX:
                rule = f"it must be 1 second to {GRACE_SECONDS_MAX // 86_400} days"
                raise InvalidInput("grace", f"{grace_seconds:g} seconds", rule)
            if self.list():
                rule = "only the first token of a store has a grace period: callers without a token are refused already"
                raise InvalidInput("grace", f"{grace_seconds:g} seconds", rule)
            record = replace(record, grace_until_us=record.created_us + int(grace_seconds * MICROSECONDS))
        self._catalog.tokens.add(record)
        self.forget()
        return record, text

    def rotate(
        self, name_or_id: str, keep_seconds: float, life_seconds: float | None = None
    ) -> tuple[TokenRecord, str, Sequence[TokenRecord]]:
        """Replace the tokens of a name, which stay valid for a while; returns the new one, its text, the old ones.

        By default the new token gets the lifetime of the newest old one.
        """
        now_us = self._clock.now_us()
        old = [token for token in self.list() if name_or_id in (token.id, token.name) and not _has_ended(token, now_us)]
        if not old:
            raise InvalidInput(
                "token", repr(name_or_id[:100]), "no valid token has this name or id: see headrace token list"
            )
        if any(token.grants != old[0].grants for token in old):
            rule = "several tokens with this name have different rights: give the id of one"
            raise InvalidInput("token", repr(name_or_id[:100]), rule)
        newest = old[-1]
        if life_seconds is None and newest.expires_us is not None:
            life_seconds = (newest.expires_us - newest.created_us) / MICROSECONDS
        end_us = now_us + int(_check_seconds("keep", keep_seconds, 0) * MICROSECONDS)
        record, text = self._new(newest.name, newest.grants, life_seconds)
        ends = {token.id: min(end_us, token.expires_us or end_us) for token in old}
        self._catalog.tokens.replace(record, ends)
        self.forget()
        return record, text, old

    def _new(self, name: str, grants: tuple[Grant, ...], life_seconds: float | None) -> tuple[TokenRecord, str]:
        token_id, secret, now_us = secrets.token_hex(6), secrets.token_urlsafe(32), self._clock.now_us()
        end_us = None
        if life_seconds is not None:
            end_us = now_us + int(_check_seconds("expires", life_seconds, 1) * MICROSECONDS)
        text = f"{_PREFIX}_{token_id}_{secret}"
        scram = secret_of(text, secrets.token_bytes(SCRAM_SALT_BYTES))
        return TokenRecord(token_id, name, _hashed(secret), grants, now_us, end_us, scram=scram), text

    def revoke(self, token_id: str) -> bool:
        """Revoke a token; returns whether it existed."""
        removed = self._catalog.tokens.remove(token_id)
        self.forget()
        return removed

    def list(self) -> list[TokenRecord]:
        """All tokens, including expired ones."""
        return self._catalog.tokens.all()

    def counts(self) -> tuple[int, int]:
        """How many tokens are valid, and how many of them are about to expire without a successor."""
        now_us = self._clock.now_us()
        valid = sum(not _has_ended(token, now_us) for token in self._known().values())
        return valid, sum(not _has_ended(token, now_us) for token in self.ending())

    def ending(self) -> Sequence[TokenRecord]:
        """The tokens that are about to expire, or did so in the last day, and have no successor of the same name."""
        now_us, last = self._clock.now_us(), dict[str, TokenRecord]()
        for token in sorted(self._known().values(), key=lambda token: token.expires_us or math.inf):
            last[token.name] = token
        return [token for token in last.values() if _is_ending(token, now_us)]

    @property
    def is_stale(self) -> bool:
        """Whether the next call would query the store, which is slow."""
        return time.monotonic() >= self._fresh_until

    @property
    def has_uses(self) -> bool:
        """Whether `store_uses` has anything to do."""
        return bool(self._uses)

    def store_uses(self) -> None:
        """Store when tokens were last used."""
        with self._lock:
            uses = {token_id: self._uses.pop(token_id) for token_id in [*self._uses]}
            self._stored_uses |= uses
            if uses:
                try:
                    self._catalog.tokens.put_uses(uses)
                except HeadraceError as error:
                    logger.debug("cannot store when tokens were last used: %s", error)

    def refresh(self) -> None:
        """Read the tokens from the store, if that was not done recently."""
        with self._lock:
            if self.is_stale:
                changes = self._changes
                records, now_us = self._catalog.tokens.all(), self._clock.now_us()
                tokens = {record.id: record for record in records}
                # Also those of expired tokens: an id must not be anyone's until its owner has a new token.
                grants = frozenset(grant for record in records for grant in record.grants)
                if grants != self._grants:
                    self._grants, self._owners = grants, ProducerOwners(grants)
                latest_us = now_us + _AHEAD_SECONDS * MICROSECONDS
                begun = (record.grace_until_us or 0 for record in records if record.created_us <= latest_us)
                grace_until_us = max(begun, default=0)
                was_open, is_open = self._looked_us < self._grace_until_us, now_us < grace_until_us
                if was_open > is_open or _valid(tokens, now_us) != _valid(self._tokens, self._looked_us):
                    self.version += 1
                self._grace_until_us = grace_until_us
                self._tokens, self._looked_us = tokens, now_us
                # Expired tokens still count as tokens: they do not open the server to everyone.
                self._has_tokens = bool(tokens)
                with self._fresh_lock:
                    # What was read before a change says nothing about it. Otherwise it counts from the answer: a store
                    # that takes longer than that to answer must not be asked by every call.
                    self._fresh_until = time.monotonic() + _FRESH_SECONDS if changes == self._changes else 0.0

    def _known(self) -> dict[str, TokenRecord]:
        if self.is_stale:
            self.refresh()
        return self._tokens

    def forget(self) -> None:
        """Query the tokens at the next call."""
        with self._fresh_lock:
            self._changes += 1
            self._fresh_until = 0.0


def described(record: TokenRecord) -> TokenDescription:
    """A token without the hash of its secret."""
    times = record.created_us, record.expires_us, record.used_us
    return TokenDescription(record.id, record.name, *times, record.grants, record.grace_until_us)


def _has_ended(token: TokenRecord, now_us: int) -> bool:
    return token.expires_us is not None and token.expires_us <= now_us


def _is_ending(token: TokenRecord, now_us: int) -> bool:
    if token.expires_us is None or token.expires_us <= now_us - EXPIRED_SECONDS_MAX * MICROSECONDS:
        return False
    return ends_soon(token.created_us, token.expires_us, now_us)


def _valid(tokens: dict[str, TokenRecord], now_us: int) -> dict[str, tuple[str, tuple[Grant, ...]]]:
    """The tokens without their times of last use, for comparison."""
    valid = (token for token in tokens.values() if not _has_ended(token, now_us))
    return {token.id: (token.secret_hash, token.grants) for token in valid}


def _check_seconds(field: str, seconds: float, least: float) -> float:
    if not least <= seconds <= _LIFE_SECONDS_MAX:
        raise InvalidInput(field, f"{seconds:g} seconds", f"it must be {least:g} seconds to a hundred years")
    return seconds


def _given(token: str) -> ProvenToken | None:
    """What the text of a token says."""
    prefix, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    return ProvenToken(token_id, _hashed(secret)) if prefix == _PREFIX else None


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()

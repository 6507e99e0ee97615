"""Who may come in: tokens, checked in one place for every protocol.

A token is `hr_<id>_<secret>`. Only a hash of the secret is kept, in the catalog; the token itself is shown once, when
it is made. As long as there are no tokens everyone may do everything, which is why a server without tokens listens on
loopback only, and one that others can reach lets nobody in once its last token is revoked. Tokens are looked up again
every second: one that another process made or revoked counts within that time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Final

from headrace.broker.clock import Clock, SystemClock
from headrace.core.errors import Unauthenticated
from headrace.core.names import check_id
from headrace.core.rights import ANYONE, Caller, check_grants
from headrace.storage.catalog import Catalog, TokenRecord

_PREFIX: Final = "hr"
_FRESH_SECONDS: Final = 1.0


class Access:
    """The tokens of a store. Safe for threads."""

    def __init__(self, catalog: Catalog, clock: Clock | None = None, must_authenticate: bool = False) -> None:
        self._catalog = catalog
        self._must_authenticate = must_authenticate
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tokens: dict[str, TokenRecord] = {}
        self._fresh_until = 0.0

    def is_open(self) -> bool:
        """Whether everyone may do everything, since there are no tokens."""
        return not self._known() and not self._must_authenticate

    def authenticate(self, token: str | None) -> Caller:
        """Who comes with this token."""
        known = self._known()
        if not known and not self._must_authenticate:
            return ANYONE
        if not token:
            raise Unauthenticated("no token was sent")
        prefix, _, rest = token.partition("_")
        token_id, _, secret = rest.partition("_")
        record = known.get(token_id)
        expected = record.secret_hash if record is not None else _hashed("")
        is_right = hmac.compare_digest(_hashed(secret), expected)
        if record is None or prefix != _PREFIX or not is_right:
            raise Unauthenticated("the token is unknown or revoked")
        return Caller(record.name, record.grants)

    def create(self, name: str, grants: Iterable[tuple[str, Iterable[str]]]) -> tuple[TokenRecord, str]:
        """Make a token; its text is given out here and never again."""
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        checked = check_grants(grants)
        record = TokenRecord(token_id, check_id("token name", name), _hashed(secret), checked, self._clock.now_us())
        self._catalog.add_token(record)
        self._fresh_until = 0.0
        return record, f"{_PREFIX}_{token_id}_{secret}"

    def revoke(self, token_id: str) -> bool:
        """Let a token in no more; whether there was one."""
        self._fresh_until = 0.0
        return self._catalog.remove_token(token_id)

    def list(self) -> list[TokenRecord]:
        """All tokens."""
        return self._catalog.tokens()

    @property
    def is_stale(self) -> bool:
        """Whether the next look at the tokens waits for the catalog: call `refresh` before, where nothing may wait."""
        return time.monotonic() >= self._fresh_until

    def refresh(self) -> None:
        """Look the tokens up again, unless another thread just did."""
        with self._lock:
            if self.is_stale:
                self._tokens = {record.id: record for record in self._catalog.tokens()}
                self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def _known(self) -> dict[str, TokenRecord]:
        if self.is_stale:
            self.refresh()
        return self._tokens


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

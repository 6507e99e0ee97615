"""Tokens that another process makes and revokes."""

from __future__ import annotations

import time

import pytest

from headrace.broker.access import Access
from headrace.core.errors import Unauthenticated
from headrace.storage.open import open_store


def test_a_token_that_another_process_revoked_is_out_within_a_second() -> None:
    store = open_store("memory:")
    here, elsewhere = Access(store.catalog), Access(store.catalog)
    record, token = elsewhere.create("till", [("*", ["read"])])
    assert here.authenticate(token).name == "till"
    assert elsewhere.revoke(record.id)
    assert here._fresh_until - time.monotonic() <= 1.0
    # That second is over.
    here._fresh_until = 0.0
    elsewhere.create("other", [("*", ["read"])])
    with pytest.raises(Unauthenticated):
        here.authenticate(token)
    store.close()

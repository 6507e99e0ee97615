"""Receipts of an idempotent producer's batch: what was written, what was there before, and what is another message."""

from __future__ import annotations

import pytest

from headrace.core.publish.receipts import CONFLICT, DUPLICATE_BY_SOURCE, all_duplicates
from headrace.protocols.kafka.idempotence import AlreadyWritten, OutOfOrder, _applied, _Progress


def test_other_records_with_the_same_numbers_are_no_success() -> None:
    progress = _Progress(last=4, is_known=True)
    with pytest.raises(OutOfOrder, match="other records were written with these sequence numbers"):
        _applied(progress, 5, all_duplicates(2, CONFLICT))
    assert (progress.last, progress.is_known) == (4, False), "the store is asked next time"
    with pytest.raises(AlreadyWritten):
        _applied(progress, 5, all_duplicates(2, DUPLICATE_BY_SOURCE))
    assert progress.last == 6

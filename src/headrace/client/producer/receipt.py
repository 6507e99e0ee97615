"""Receipts: the outcome of each message."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Receipt(NamedTuple):
    """A message was written at an offset, or was a duplicate and was not written again."""

    partition: int | None
    offset: int | None
    status: Literal["written", "duplicate"]

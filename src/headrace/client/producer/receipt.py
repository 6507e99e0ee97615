"""Receipts: the outcome of each message."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.publish.receipts import Status


class Receipt(NamedTuple):
    """A message was written at an offset, or was not written.

    `duplicate`: it was written before. `conflict`: its seqno was used before, for another message; two producers share
    an id, or one counts again from the start.
    """

    partition: int | None
    offset: int | None
    status: Status

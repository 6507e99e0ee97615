"""Calls that outlive a lost connection, as far as that is safe.

If no server could be reached nothing was done, and any call is tried again. If the answer was lost, only a call that
may be done twice is repeated; the others raise `AnswerLost`. The same if the server could not reach its store.
"""

from __future__ import annotations

from typing import Any

from headrace.client.backoff import Backoff
from headrace.client.transport.transport import Transport
from headrace.core.errors import AnswerLost, StoreUnavailable, Unreachable
from headrace.wire.operations import DeleteGroup, DeleteTopic, Operation, PublishStaged


class Calls:
    """Operations on a transport, tried for so many seconds. Safe for threads."""

    def __init__(self, transport: Transport, patience_seconds: float) -> None:
        self._transport = transport
        self._patience_seconds = patience_seconds

    def __call__(self, operation: Operation) -> Any:
        """Do an operation and give its answer."""
        backoff = Backoff(self._patience_seconds)
        while True:
            try:
                return self._transport.call(operation)
            except (AnswerLost, StoreUnavailable):
                if not is_repeatable(operation) or not backoff.wait():
                    raise
            except Unreachable:
                if not backoff.wait():
                    raise


def is_repeatable(operation: Operation) -> bool:
    """Whether doing it twice is as good as doing it once."""
    if isinstance(operation, PublishStaged):
        return operation.writer is not None
    return not isinstance(operation, DeleteTopic | DeleteGroup)

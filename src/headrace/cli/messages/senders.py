"""Senders of batches of lines, over HTTP or Flight. Each retries where that is safe and may help."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.cli.exits import Exit, Failure, exit_of
from headrace.cli.remote import http
from headrace.cli.remote.paths import path_of
from headrace.client import Client
from headrace.core.errors import HeadraceError, InvalidMessage

_RETRY_PAUSE_SECONDS: Final = 0.5


class RowRefused(Failure):
    """One row of a batch is invalid."""

    def __init__(self, exit: Exit, line: str, row: int) -> None:
        super().__init__(exit, line.removeprefix(f"row {row}: "))
        self.row = row


class LineSender(Protocol):
    """Publishes batches one after another.

    has_sent_again: whether the last batch was sent more than once, which explains duplicates in it.
    """

    has_sent_again: bool

    def last_seqno(self, producer_id: str) -> int | None:
        """The highest seqno that a producer has written, or 0; None if the sender assigns seqnos itself."""

    def send(self, batch: pa.RecordBatch) -> pa.Array:
        """Publish a batch in one commit; returns the status of each row."""


class HttpSender:
    """Sends over HTTP, one request per batch."""

    def __init__(self, client: http.HttpClient, topic: str, is_repeatable: bool, retry_seconds: float) -> None:
        self._client = client
        self._topic = topic
        self._path = path_of("topics", topic, "messages")
        self._is_repeatable = is_repeatable
        self._retry_seconds = retry_seconds
        self.has_sent_again = False

    def last_seqno(self, producer_id: str) -> int:
        """The highest seqno that a producer has written, or 0."""
        path = path_of("topics", self._topic, "sources", producer_id)
        return int(self._tried(lambda: self._client.get(path))["last_seqno"] or 0)

    def send(self, batch: pa.RecordBatch) -> pa.Array:
        """Publish, with retries for a while where that is safe and may help."""
        statuses: pa.Array = self._tried(lambda: self._client.post_arrow(self._path, batch)["status"])
        return statuses

    def _tried(self, call: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self._retry_seconds
        self.has_sent_again = False
        while True:
            try:
                return call()
            except http.Refused as refused:
                if not self._may_retry(refused) or time.monotonic() >= deadline:
                    raise _placed(refused) from None
            except http.ServerUnreachable:
                # Without a producer id, a message whose answer was lost would be written twice.
                if not self._is_repeatable or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_PAUSE_SECONDS)
            self.has_sent_again = True

    def _may_retry(self, refused: http.Refused) -> bool:
        is_unknown = refused.problem.code == "outcome_unknown"
        return refused.problem.retry and (self._is_repeatable or not is_unknown)


def _placed(refused: http.Refused) -> Failure:
    row = refused.problem.fields.get("row")
    return RowRefused(refused.exit, str(refused), row) if isinstance(row, int) else refused


class FlightSender:
    """Sends over Flight, by a producer that retries safely."""

    # The producer retries by itself without reporting it. Another with its id is fenced, so duplicates are its own.
    has_sent_again = True

    def __init__(self, client: Client, topic: str, producer_id: str | None, retry_seconds: float) -> None:
        self._producer = client.producer(topic, producer_id, linger_seconds=0.0, timeout_seconds=retry_seconds)

    def last_seqno(self, producer_id: str) -> None:
        """None: a producer with an id assigns seqnos itself."""

    def send(self, batch: pa.RecordBatch) -> pa.Array:
        """Publish, and wait for the receipts."""
        try:
            return self._producer.send_batch(batch).column("status")
        except InvalidMessage as error:
            raise RowRefused(Exit.REFUSED, str(error), error.row) from None
        except HeadraceError as error:
            raise Failure(exit_of(type(error)), str(error)) from None

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

"""Single messages, created from the columns of a batch: each column is converted to Python values once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message(NamedTuple):
    """One message. Times are microseconds since 1970, and datetimes by property.

    `value` and `key` are bytes, unless the consumer was opened with a serializer; None is null, which is not empty. Of
    attributes with the same name the last is given: the column of a batch has all of them.
    """

    partition: int
    offset: int
    timestamp_us: int
    value: Any
    key: Any = None
    attributes: dict[str, bytes | None] | None = None
    codec: str | None = None
    created_us: int | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None
    topic: str | None = None

    @property
    def timestamp(self) -> datetime:
        """When the broker wrote it."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def created_at(self) -> datetime | None:
        """When its producer created it, if given."""
        return None if self.created_us is None else _EPOCH + timedelta(microseconds=self.created_us)


def messages_of(batch: pa.RecordBatch, topic: str | None = None) -> Iterator[Message]:
    """The rows of a batch that was read, as messages."""
    return map(Message._make, zip(*(_values(column) for column in batch.columns), repeat(topic), strict=False))


def _values(column: pa.Array) -> Iterable[Any]:
    if column.null_count == len(column):
        return repeat(None, len(column))
    if pa.types.is_timestamp(column.type):
        values: list[Any] = column.view(pa.int64()).to_pylist()
        return values
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    plain: list[Any] = column.to_pylist()
    return plain

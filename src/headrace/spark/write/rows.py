"""Groups rows from Spark by topic, and small batches into larger ones.

Topic names are not case sensitive, so rows are sorted by what two names must share to be one topic: else `Orders` and
`orders` would be two commits of one sink to one topic, and the second would count as a repetition of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import InvalidMessage
from headrace.core.names import check_topic_name, topic_key

PIECE_BYTES: Final = 8 << 20
PIECE_ROWS: Final = 1 << 17
# What waits for all topics together: with many topics a piece goes out before it is large.
WAITING_BYTES: Final = 64 << 20


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by topic: all to the one given, or each to the one it names."""
    named = batch.rename_columns([name.lower() for name in batch.schema.names])
    place = named.schema.get_field_index("topic")
    if place < 0:
        assert topic is not None, "the schema check ensures a topic"
        yield topic, named
        return
    topics, rest = named.column(place), named.remove_column(place)
    if topic is not None:
        yield topic, rest
        return
    if topics.null_count:
        row = pc.index(topics.is_null(), True).as_py()
        raise InvalidMessage("topic", "null", "every row must name its topic", row)
    encoded = topics.dictionary_encode()
    names = [check_topic_name(name) for name in encoded.dictionary.to_pylist()]
    if len(names) == 1:
        yield names[0], rest
        return
    for number, name in enumerate(names):
        yield name, rest.filter(pc.equal(encoded.indices, number))


class Pieces:
    """Rows collected by topic until there are enough of them to send."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._bytes_waiting = 0

    def add(self, topic: str, batch: pa.RecordBatch) -> tuple[str, pa.RecordBatch] | None:
        """Add rows; returns a piece to send, if there is enough for one."""
        if not batch.num_rows:
            return None
        key = topic_key(topic)
        self._names.setdefault(key, topic)
        self._waiting.setdefault(key, []).append(batch)
        size = batch.nbytes
        self._bytes[key] = self._bytes.get(key, 0) + size
        self._bytes_waiting += size
        self._rows[key] = self._rows.get(key, 0) + batch.num_rows
        if self._bytes[key] >= PIECE_BYTES or self._rows[key] >= PIECE_ROWS:
            return self._take(key)
        if self._bytes_waiting > WAITING_BYTES:
            return self._take(max(self._bytes, key=self._bytes.__getitem__))
        return None

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The remaining pieces."""
        for key in list(self._waiting):
            yield self._take(key)

    def _take(self, key: str) -> tuple[str, pa.RecordBatch]:
        batches = self._waiting.pop(key)
        self._bytes_waiting -= self._bytes[key]
        self._bytes[key] = self._rows[key] = 0
        return self._names[key], batches[0] if len(batches) == 1 else pa.concat_batches(batches)

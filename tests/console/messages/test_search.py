"""What a search and a list hold in memory, however large messages are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.message import Message
from headrace.client.where.expression import Anywhere
from headrace.console.messages import reader, search
from tests.client.where.test_matching import batch_of


class Scanned:
    """A client that reads one batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    async def scan(self, *_: Any, **__: Any) -> AsyncIterator[pa.RecordBatch]:
        yield self._batch


def packed(values: list[bytes]) -> pa.RecordBatch:
    """A batch of values compressed by zstd."""
    stored = [pa.compress(value, "zstd", asbytes=True) for value in values]
    batch = batch_of(stored)
    place = batch.schema.get_field_index("codec")
    return batch.set_column(place, batch.schema.field(place), pa.array(["zstd"] * len(values), pa.string()))


def test_a_search_ends_at_a_limit_of_decompressed_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FOUND_BYTES_MAX", 1 << 20)
    found = search.Search("orders", Anywhere("a"), {0: (0, 100)})
    client: Any = Scanned(packed([b"a" * (256 << 10)] * 100))
    asyncio.run(found.run(client))
    assert found.is_full and len(found.found) == 4
    assert found.found[0].value == b"a" * (256 << 10)


def test_a_list_holds_a_limited_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "READ_BYTES", 100)
    messages = [Message(0, offset, offset, b"x" * 40) for offset in range(5)]
    assert [each.offset for each in reader._newest(messages, 5)] == [4, 3]
    assert len(reader._newest([Message(0, 0, 0, b"x" * 200)], 5)) == 1

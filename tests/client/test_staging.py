"""Staging by the client, the same on every transport."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, MessageTooLarge, StageNotFound
from headrace.core.publish.state import CommitKey

ON_POSTGRES = True

ROWS = pa.record_batch({"value": pa.array([b"a", b"b"])})


def test_stages_are_published_once_and_together(client: Client) -> None:
    client.create_topic("orders")
    staged = [client.stage("orders", [ROWS, ROWS], name) for name in ("one", "two")]
    assert [part.rows for part in staged] == [4, 4]
    assert client.offsets("orders") == {0: (0, 0)}
    assert client.publish_staged("orders", staged, CommitKey("sink", 7)) == (8, 0)
    assert client.publish_staged("orders", staged, CommitKey("sink", 7)) == (0, 8)
    assert client.last_commit("orders", "sink") == 7
    assert client.offsets("orders") == {0: (0, 8)}
    with pytest.raises(StageNotFound):
        client.publish_staged("orders", staged)


def test_what_cannot_be_staged_is_refused(client: Client) -> None:
    client.create_topic("orders", message_bytes_max=5)
    with pytest.raises(InvalidInput):
        client.stage("orders", [], "s")
    with pytest.raises(InvalidInput):
        client.stage("orders", [ROWS, pa.record_batch({"value": pa.array([b"a"]), "key": pa.array([b"k"])})], "s")
    with pytest.raises(MessageTooLarge):
        client.stage("orders", [pa.record_batch({"value": pa.array([b"too large"])})], "t")
    client.stage("orders", [ROWS], "u")
    assert client.drop_stages("orders", ["u"]) == 1

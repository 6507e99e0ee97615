"""Stores that earlier versions wrote, kept as bytes (`stores/`): all that is in them is there, and they go on."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.groups.notes import CommitNote
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.storage.open import open_store
from tests.broker.stores.write import KEY

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.xz"))
# What `stores/write.py` writes.
ROUNDS = 20
TRANSACTED = ("left", "right")
# Stores of versions that had no transactions.
EARLIER = ("2026_11",)


@pytest.fixture(params=STORES, ids=lambda path: path.name.split(".")[0])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return f"file:{tmp_path}/store?segment_bytes=4096&room_bytes=4096"


def messages(broker: Broker, topic: str) -> list[dict[str, object]]:
    return [
        row
        for partition, (start, end) in broker.offsets(topic).items()
        for row in broker.fetch(topic, partition, start, max_messages=end + 1).to_pylist()
    ]


def test_there_are_stores() -> None:
    assert STORES


def test_messages_groups_offsets_sources_and_tokens_are_those_written(url: str) -> None:
    with Broker.open(url) as broker:
        assert [topic for topic in broker.list_topics() if topic not in TRANSACTED] == ["Orders", "plain"]
        found = messages(broker, "orders")
        keyed = [row for row in found if row["key"] is not None]
        assert sorted(int(str(row["seqno"])) for row in keyed) == list(range(1, ROUNDS + 1))
        assert {row["value"] for row in keyed} == {b"value %d" % number for number in range(ROUNDS)}
        assert {row["producer_id"] for row in keyed} == {"till-0", "till-1"}
        assert all(row["attributes"] == [("kind", b"sale")] for row in keyed)
        # Nulls are no payload; of the empty values one was written, and the others are its duplicates.
        others = [row["value"] for row in found if row["key"] is None]
        assert (others.count(None), others.count(b"")) == (7, 1)
        assert broker.offsets("plain") == {0: (3, ROUNDS)}
        assert [row["value"] for row in messages(broker, "plain")] == [
            b"%d" % number * 40 for number in range(3, ROUNDS)
        ]
        assert broker.describe_topic("plain").settings.key_hash == "murmur2"
        assert [group for group in broker.list_groups("orders") if group != "joined"] == ["billing", "fixed"]
        assert broker.committed("orders", "billing") == {0: 2, 1: 1}
        assert broker.describe_group("orders", "billing").important
        assert broker.describe_group("orders", "fixed").consumers == 2
        assert broker.committed("plain", "late") == {0: 7}
        assert [token.name for token in broker.access.list()] == ["till", "report"]


def test_transactions_members_and_stages_are_those_written(url: str, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.id in EARLIER:
        return
    # Without maintenance, for which the stage is old.
    for _ in range(2):
        with Broker(open_store(url)) as broker:
            for topic in TRANSACTED:
                assert [row["value"] for row in messages(broker, topic)] == [topic.encode()] * 3
            assert (broker.committed("plain", "moved"), broker.committed("orders", "joined")) == ({0: 5}, {2: 1})
            assert broker.describe_group("orders", "joined").members == {"ann": [0, 1, 2]}
            # The key is known, so that nothing is done again.
            stages = {"right": [broker.stage("right", pa.record_batch({"value": [b"again"]}))]}
            assert broker.commit_transaction(stages, commit_key=KEY).last_number == KEY.number
    with Broker(open_store(url)) as broker:
        broker.commit_transaction({"left": [Staged("waiting", 1)]}, commit_key=CommitKey(KEY.writer, KEY.number + 1))
        assert messages(broker, "left")[-1]["value"] == b"waited"


def test_they_go_on(url: str) -> None:
    for _ in range(2):
        with Broker.open(url) as broker:
            rows = {"value": [b"again", b"new"], "producer_id": ["till-1"] * 2, "seqno": [ROUNDS, ROUNDS + 1]}
            statuses = broker.publish("orders", pa.record_batch(rows)).to_arrow()["status"].to_pylist()
            assert statuses[0] in ("duplicate", "conflict") and statuses[1] in ("written", "duplicate")
            broker.commit_offsets("orders", "billing", {0: 3})
            broker.register_group("orders", "more")
            broker.publish("plain", pa.record_batch({"value": [b"x" * 3_000]}))
    with Broker.open(url) as broker:
        assert sum(row["value"] == b"new" for row in messages(broker, "orders")) == 1
        assert broker.committed("orders", "billing") == {0: 3, 1: 1}
        broker.reader("orders").commit_notes("billing", {1: 0}, {1: CommitNote(-1, 2, b"said")}, is_back=True)
        assert broker.reader("orders").noted("billing") == {0: CommitNote(3), 1: CommitNote(-1, 2, b"said")}
        assert [group for group in broker.list_groups("orders") if group != "joined"] == ["billing", "fixed", "more"]
        assert broker.offsets("plain") == {0: (3, ROUNDS + 2)}

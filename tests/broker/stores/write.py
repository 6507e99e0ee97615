"""Write a store with something of everything, to be kept: `python -m tests.broker.stores.write NAME`.

Run it with the version whose store is to be kept; it makes NAME.tar.xz beside this file, and NAME_killed.tar.xz, as a
process leaves it that is killed. What is in a store that exists is never changed: a later format gets one of its own.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import TransactionOffsets

TOKENS = ("till", "report")
KEY = CommitKey("writer", 7)


def write(directory: Path, killed: Path) -> None:
    """Topics, messages of all kinds, sources, groups, offsets, deleted messages, tokens, transactions; then a copy."""
    with Broker.open(f"file:{directory}?segment_bytes=4096&room_bytes=4096") as broker:
        broker.create_topic("Orders", partitions=3, deduplication="payload")
        broker.create_topic("plain", key_hash="murmur2", retention_seconds=10 * 365 * 86_400)
        for number in range(20):
            rows = {
                "value": [b"value %d" % number, b"" if number % 3 else None],
                "key": [b"key %d" % (number % 5), None],
                "producer_id": [f"till-{number % 2}", None],
                "seqno": [number + 1, None],
                "attributes": pa.array([[("kind", b"sale")], None], pa.map_(pa.string(), pa.binary())),
            }
            broker.publish("Orders", pa.record_batch(rows))
            broker.publish("plain", pa.record_batch({"value": [b"%d" % number * 40]}))
        broker.register_group("Orders", "billing", important=True)
        broker.register_group("Orders", "fixed", consumers=2)
        broker.register_group("plain", "late", read_from="latest")
        broker.commit_offsets("Orders", "billing", {0: 2, 1: 1})
        broker.seek("plain", "late", {0: 7})
        broker.delete_messages("plain", {0: 3})
        for name in TOKENS:
            broker.access.create(name, [("orders", ["read", "publish"])], groups=["billing"])
        write_transaction(broker)
        shutil.copytree(directory, killed)


def write_transaction(broker: Broker) -> None:
    """A commit of two topics and of the offsets of two groups; a member, and a stage that waits."""
    stages = {}
    for topic in ("left", "right"):
        broker.create_topic(topic)
        stages[topic] = [broker.stage(topic, pa.record_batch({"value": [topic.encode()] * 3}))]
    broker.register_group("plain", "moved")
    broker.join_group("Orders", "joined", "ann", session_timeout_seconds=1_800.0)
    generation = broker.heartbeat("Orders", "joined", "ann").generation
    offsets = [
        TransactionOffsets("plain", "moved", {0: 5}),
        TransactionOffsets("Orders", "joined", {2: 1}, "ann", generation),
    ]
    broker.commit_transaction(stages, offsets, KEY)
    broker.stage("left", pa.record_batch({"value": [b"waited"]}), "waiting")


def main() -> None:
    """Write the archives of this name."""
    name = sys.argv[1]
    with TemporaryDirectory() as directory:
        closed, killed = Path(directory) / "store", Path(directory) / "killed"
        write(closed, killed)
        for path, suffix in ((closed, ""), (killed, "_killed")):
            with tarfile.open(Path(__file__).parent / f"{name}{suffix}.tar.xz", "w:xz") as archive:
                archive.add(path, "store")


if __name__ == "__main__":
    main()

"""First steps with the engine in process: publish, retry safely, read as a group."""

from tempfile import TemporaryDirectory

import pyarrow as pa

from headrace import Broker

with TemporaryDirectory() as directory, Broker.open(f"file:{directory}/store") as broker:
    broker.create_topic("orders", partitions=8)
    batch = pa.record_batch(
        {
            "value": [b"42.00", b"7.50", b"3.20"],
            "key": [b"user-1", b"user-2", b"user-1"],
            "producer_id": ["till-7", "till-7", "till-7"],
            "seqno": [1, 2, 3],
        }
    )
    print("published:", broker.publish("orders", batch).to_arrow().to_pylist())
    print("retried:  ", broker.publish("orders", batch).to_arrow().column("status").to_pylist())
    print("continue at:", broker.last_seqno("orders", "till-7"))

    broker.register_group("orders", "billing", consumers=1)
    offsets = broker.offsets("orders")
    for partition, (start, end) in offsets.items():
        if start < end:
            messages = broker.fetch("orders", partition, start)
            for row in messages.select(["partition", "offset", "key", "value"]).to_pylist():
                print("read:     ", row)
    broker.commit_offsets("orders", "billing", {partition: end for partition, (_, end) in offsets.items()}, member=0)
    print("lag:      ", broker.describe_group("orders", "billing").lag_messages, "messages")

"""Send messages: one by one with a receipt each, and a whole Arrow batch in one call.

python examples/produce.py headrace://127.0.0.1:7071
"""

import sys

import pyarrow as pa

import headrace


def main(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("orders", partitions=4)
        with client.producer("orders", producer_id="till-7") as producer:
            futures = [
                producer.send(b"loaf %d" % number, key=b"user-%d" % (number % 3), attributes={"kind": b"sale"})
                for number in range(1_000)
            ]
            print("the first is at", futures[0].result())
            batch = pa.record_batch({"value": [b"roll", b"cake"], "key": [b"user-1", b"user-2"]})
            print(producer.send_batch(batch).to_pylist())
        print(sum(end for _, end in client.offsets("orders").values()), "orders are on the disk")


if __name__ == "__main__":
    main(sys.argv[1])

"""Orders in, invoices out, each exactly once, however often this is killed and started again.

The producer numbers each invoice with the offset of its order, in a message group for each partition. So the broker
itself knows how far this got: it continues after the last number, and what is sent twice is written once.

python examples/etl_exactly_once.py headrace://127.0.0.1:7071
"""

import json
import sys

import headrace


def invoice(order: bytes) -> bytes:
    customer, cents = order.decode().split(":")
    return json.dumps({"customer": customer, "cents": int(cents), "vat": int(cents) * 19 // 100}).encode()


def main(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("invoices")
        written = 0
        for partition, (start, end) in client.offsets("sales").items():
            with client.producer("invoices", "etl", message_group_id=f"sales-{partition}") as producer:
                last = producer.last_seqno
                position = start if last is None else max(start, last + 1)
                for batch in client.scan("sales", partition, position, end):
                    for row in batch.to_pylist():
                        producer.send(invoice(row["value"]), key=row["key"], seqno=row["offset"])
                        written += 1
        print(written, "invoices written")


if __name__ == "__main__":
    main(sys.argv[1])

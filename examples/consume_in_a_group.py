"""Read as a member of a group: start several of these, and they share the partitions.

python examples/consume_in_a_group.py headrace://127.0.0.1:7071
"""

import sys

import headrace


def main(url: str) -> None:
    with (
        headrace.connect(url) as client,
        client.consumer(
            "orders",
            group="billing",
            on_assigned=lambda partitions: print("mine now:", partitions),
            on_revoked=lambda partitions: print("given away:", partitions),
        ) as consumer,
    ):
        total = 0
        while (batch := consumer.poll(max_messages=500, timeout=5.0)).num_rows:
            total += batch.num_rows
            consumer.commit()
        print(total, "orders billed, lag", client.describe_group("orders", "billing").lag_messages)


if __name__ == "__main__":
    main(sys.argv[1])

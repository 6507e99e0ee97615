"""A member that drops what it holds in `on_lost`: `python -m tests.client.buffering_member URL TOPIC GROUP COUNT`.

It prints "ready" when it holds COUNT messages of which it committed none. Once it has lost its partitions and holds as
many again, it commits them, prints them and ends.
"""

from __future__ import annotations

import sys

from headrace.client import connect


def main() -> None:
    url, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    held: list[str] = []
    losses: list[list[int]] = []

    def lost(partitions: list[int]) -> None:
        losses.append(partitions)
        held.clear()

    with (
        connect(url) as client,
        client.consumer(topic, group, session_timeout_seconds=1.0, on_lost=lost) as consumer,
    ):

        def hold(messages: int) -> None:
            while len(held) < messages:
                held.extend(value.decode() for value in consumer.poll(timeout=0.1).column("value").to_pylist())

        hold(count)
        print("ready", flush=True)
        while not losses:
            held += [value.decode() for value in consumer.poll(timeout=0.1).column("value").to_pylist()]
        hold(count)
        assert consumer.commit() == []
        print(*held, flush=True)


if __name__ == "__main__":
    main()

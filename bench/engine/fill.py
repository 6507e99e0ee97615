"""Fill a store with commits of 100 messages, say so, and continue until killed: `fill DIRECTORY COMMITS`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.engine.loads import batch
from headrace.broker import Broker


def main() -> None:
    """Publish for ever."""
    directory, commits = Path(sys.argv[1]), int(sys.argv[2])
    messages = batch(100)
    with Broker.open(f"file:{directory}/store") as broker:
        broker.create_topic("bench", partitions=8)
        while True:
            broker.publish("bench", messages)
            if broker.counters["commits_written"] == commits:
                print("filled", flush=True)


if __name__ == "__main__":
    main()

"""A broker whose main thread is interrupted a hundred times while it publishes beside others; prints what came of it.

`python -m tests.faults.interrupted_publisher`
"""

from __future__ import annotations

import os
import signal
import threading

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import OutcomeUnknown

INTERRUPTS = 100
OTHERS = 3
ROW = pa.record_batch({"value": [b"v"]})


class Publisher:
    """Publishes one message after another, and counts those that were acknowledged."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.acknowledged = 0

    def publish_until(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                self._broker.publish("orders", ROW)
                self.acknowledged += 1
            except OutcomeUnknown:
                pass


def main() -> None:
    over = threading.Event()
    with Broker.open("memory:") as broker:
        broker.create_topic("orders")
        publishers = [Publisher(broker) for _ in range(OTHERS + 1)]
        threads = [threading.Thread(target=other.publish_until, args=[over]) for other in publishers[1:]]
        for thread in threads:
            thread.start()
        interrupts = 0
        while interrupts < INTERRUPTS:
            interrupting = threading.Timer(0.002 + interrupts % 7 * 0.001, os.kill, [os.getpid(), signal.SIGINT])
            try:
                interrupting.start()
                publishers[0].publish_until(over)
            except KeyboardInterrupt:
                interrupts += 1
                interrupting.join()
        over.set()
        for thread in threads:
            thread.join()
        # Whoever waits for a turn that nobody hands on would wait here for ever.
        broker.publish("orders", ROW)
        written = broker.offsets("orders")[0][1]
    print(interrupts, written - 1 >= sum(publisher.acknowledged for publisher in publishers), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()

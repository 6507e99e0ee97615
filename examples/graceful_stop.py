"""A worker that ends well: on SIGTERM or Ctrl-C it finishes the batch at hand, commits, and leaves its group.

The next worker then continues where this one stopped, at once, instead of waiting for its session to expire.

python examples/graceful_stop.py headrace://127.0.0.1:7071
"""

import signal
import sys
import threading

import headrace


def main(url: str) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    handled = 0
    with headrace.connect(url) as client, client.consumer("tasks", group="workers") as consumer:
        print("working", flush=True)
        while not stop.is_set():
            batch = consumer.poll(max_messages=100, timeout=0.5)  # short, so that a stop is noticed soon
            for row in batch.to_pylist():
                handled += len(row["value"]) > 0
            consumer.commit()
    print("stopped after", handled, "tasks", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

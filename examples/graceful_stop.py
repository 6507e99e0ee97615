"""A worker that ends well: on SIGTERM or Ctrl-C it finishes the message at hand, commits, and leaves its group.

The next worker then continues where this one stopped, at once, instead of waiting for its session to expire.

python examples/graceful_stop.py headrace://127.0.0.1:7071
"""

import signal
import sys

import headrace


def main(url: str) -> None:
    handled = 0
    with headrace.connect(url) as client, client.consumer("tasks", group="workers") as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.stop())
        print("working", flush=True)
        while not consumer.is_stopped:
            for message in consumer.messages(idle_seconds=0.5):  # ends when idle, and after stop()
                handled += len(message.value) > 0
            consumer.commit()
    print("stopped after", handled, "tasks", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

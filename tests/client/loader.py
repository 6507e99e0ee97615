"""A program that loads lines: `python -m tests.client.loader URL TOPIC COUNT MODE [PAUSE_AFTER]`.

Line n has the number n. With mode `all` it sends every line each time it runs; with `rest` it continues after the last
number that was written. With PAUSE_AFTER it says how far it is after so many lines, and then waits to be killed.
"""

from __future__ import annotations

import sys
import threading

from headrace.client import connect


def main() -> None:
    url, topic, count, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    pause_after = int(sys.argv[5]) if len(sys.argv) > 5 else None
    with connect(url) as client, client.producer(topic, producer_id="loader", linger_seconds=0.001) as producer:
        begin = 0 if mode == "all" or producer.last_seqno is None else producer.last_seqno + 1
        for sent, number in enumerate(range(begin, count)):
            future = producer.send(b"line %d" % number, seqno=number)
            if sent == pause_after:
                future.result()
                # More is on its way when the end comes.
                for more in range(number + 1, min(number + 50, count)):
                    producer.send(b"line %d" % more, seqno=more)
                print("ready", flush=True)
                threading.Event().wait()
        producer.flush()
        print(producer.last_seqno, flush=True)


if __name__ == "__main__":
    main()

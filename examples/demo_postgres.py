"""Two servers on one PostgreSQL, one consumer group, one kill: nothing is lost and nothing is delivered twice.

`make demo-postgres` runs it on a PostgreSQL of its own, which is removed at the end; give the URL of another as the
argument: `python examples/demo_postgres.py postgresql://USER:PASSWORD@HOST/DATABASE?schema=demo`. The exit code says
whether the sums agree.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from headrace import Client, connect

ROOT = Path(__file__).parents[1]
HEADRACE = Path(sys.executable).with_name("headrace")
PAYMENTS = 20_000
BATCH = 500
TOPIC = "payments"
PATIENCE_SECONDS = 120.0


@contextmanager
def database() -> Iterator[str]:
    """The URL given, or that of a PostgreSQL that runs for the duration of the demo."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    sys.path.insert(0, str(ROOT))
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        yield server.fresh_url()
    finally:
        server.stop()


class Server:
    """A running `headrace serve` on ports that the system chose."""

    def __init__(self, store: str) -> None:
        command = [str(HEADRACE), "serve", "--store", store, "--http", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().strip()
        print(ready or "the server did not start")
        self.url = next(word for word in ready.split() if word.startswith("headrace://"))

    def end(self, how: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        self.process.send_signal(how)
        self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Tellers:
    """Members of one group; together they add up every payment, however often one is given to them."""

    def __init__(self, urls: list[str]) -> None:
        self.amounts: dict[tuple[int, int], int] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(urls[turn:] + urls[:turn], f"teller-{turn}"), daemon=True)
            for turn in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, urls: list[str], name: str) -> None:
        with (
            connect(urls, timeout_seconds=PATIENCE_SECONDS) as client,
            client.consumer(TOPIC, group="tellers", member_id=name, session_timeout_seconds=5) as consumer,
        ):
            while not self._over.is_set():
                batch = consumer.poll(1_000, timeout=0.2)
                places = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
                self.amounts.update(zip(places, map(int, batch["value"].to_pylist()), strict=True))
                consumer.commit()

    def await_payments(self) -> None:
        """Wait until all is read, but not for ever."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.amounts) < PAYMENTS and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        """Let the members commit, leave and end."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)


def pay(client: Client, victim: Server) -> int:
    """Publish all payments as one producer, whose server is killed half-way; their sum."""
    total = 0
    with client.producer(TOPIC, producer_id="till-7", timeout_seconds=PATIENCE_SECONDS) as producer:
        for first in range(0, PAYMENTS, BATCH):
            if first == PAYMENTS // 2:
                victim.end(signal.SIGKILL)
                print("killed the server that the producer and one member talked to; both continue with the other")
            amounts = [1 + number * 7919 % 997 for number in range(first, first + BATCH)]
            keys = [b"account-%d" % (number % 100) for number in range(first, first + BATCH)]
            rows = pa.record_batch({"value": [b"%d" % amount for amount in amounts], "key": keys})
            producer.send_batch(rows)
            total += sum(amounts)
        producer.flush()
    return total


def run(store: str) -> bool:
    with ExitStack() as ending:
        first = Server(store)
        second = Server(store)
        ending.callback(second.end, signal.SIGTERM)
        client = ending.enter_context(connect([first.url, second.url], timeout_seconds=PATIENCE_SECONDS))
        client.create_topic(TOPIC, partitions=4)
        tellers = Tellers([first.url, second.url])
        paid = pay(client, first)
        tellers.await_payments()
        tellers.close()
        written = sum(end for _, end in client.offsets(TOPIC).values())
        summed = sum(tellers.amounts.values())
        lag = sum(each.lag_messages for each in client.describe_group(TOPIC, "tellers").progress.values())
        print(f"{PAYMENTS:,} payments sent, {written:,} in the topic, {len(tellers.amounts):,} read, lag {lag}")
        print(f"paid {paid:,}, added up by the group {summed:,}: {'the same' if paid == summed else 'NOT THE SAME'}")
        return paid == summed and written == PAYMENTS == len(tellers.amounts)


if __name__ == "__main__":
    with database() as url:
        is_right = run(url)
    sys.exit(0 if is_right else 1)

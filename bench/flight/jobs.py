"""What a client does in its own process: `python -m bench.flight.jobs NAME URL TOPIC SECONDS`; prints a line of JSON.

Each job warms up first, so that importing, connecting and the first batches are not measured.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from bench.engine.loads import VALUE_BYTES, batch
from bench.report import percentiles_ms
from headrace import Client, connect

UNDER_WAY = 8
SINGLES_UNDER_WAY = 20_000
POLL_MESSAGES = 100_000

Result = dict[str, float]


def publish(client: Client, topic: str, seconds: float, rows: int) -> Result:
    """Batches, several under way."""
    messages = batch(rows)
    with client.producer(topic) as producer:
        producer.send_batch(messages)
        under_way: deque[Future[Any]] = deque()
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            under_way.append(producer.submit_batch(messages))
            count += rows
            if len(under_way) >= UNDER_WAY:
                under_way.popleft().result()
        for future in under_way:
            future.result()
        return {"rate": count / (time.perf_counter() - began)}


def send(client: Client, topic: str, seconds: float) -> Result:
    """One by one from one thread, with the producer's own batching."""
    value, keys = b"x" * VALUE_BYTES, [b"user-%d" % number for number in range(1_000)]
    with client.producer(topic) as producer:
        producer.send(value).result()
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for key in keys:
                producer.send(value, key)
            count += len(keys)
        producer.flush()
        return {"rate": count / (time.perf_counter() - began)}


def single(client: Client, topic: str, seconds: float) -> Result:
    """One message at a time, waiting for each."""
    value, times = b"x" * VALUE_BYTES, []
    with client.producer(topic, linger_seconds=0.0) as producer:
        for _ in range(50):
            producer.send(value).result()
        began = time.perf_counter()
        while (start := time.perf_counter()) - began < seconds:
            producer.send(value, b"user-1").result()
            times.append(time.perf_counter() - start)
    return percentiles_ms(times)


def poll(client: Client, topic: str, seconds: float) -> Result:
    """All messages, as Arrow; the time begins with the first batch and does not count it."""
    wanted = _messages(client, topic)
    with client.consumer(topic) as consumer:
        first = consumer.poll(POLL_MESSAGES, timeout=30.0).num_rows
        count, began = first, time.perf_counter()
        while count < wanted:
            count += consumer.poll(POLL_MESSAGES, timeout=30.0).num_rows
        return {"rate": (count - first) / (time.perf_counter() - began)}


def iterate(client: Client, topic: str, seconds: float) -> Result:
    """All messages, one by one, for a given time."""
    with client.consumer(topic) as consumer:
        messages = iter(consumer)
        next(messages)
        count, began = 0, time.perf_counter()
        for _ in messages:
            count += 1
            if count % 1_000 == 0 and time.perf_counter() - began > seconds:
                break
        return {"rate": count / (time.perf_counter() - began)}


def group(client: Client, topic: str, seconds: float, name: str) -> Result:
    """A group that follows until the input ends; how many messages a second it got."""
    with client.consumer(topic, name, start="latest", auto_commit=True) as consumer:
        print(json.dumps({"ready": True}), flush=True)
        count, began = 0, time.perf_counter()
        while not select.select([sys.stdin], [], [], 0)[0]:
            count += consumer.poll(POLL_MESSAGES, timeout=0.2).num_rows
        return {"rate": count / (time.perf_counter() - began)}


def _messages(client: Client, topic: str) -> int:
    return sum(end - start for start, end in client.offsets(topic).values())


JOBS: dict[str, Callable[[Client, str, float], Result]] = {
    "publish-10000": lambda client, topic, seconds: publish(client, topic, seconds, 10_000),
    "publish-1000": lambda client, topic, seconds: publish(client, topic, seconds, 1_000),
    "send": send,
    "single": single,
    "poll": poll,
    "iterate": iterate,
    "group-1": lambda client, topic, seconds: group(client, topic, seconds, "one"),
    "group-2": lambda client, topic, seconds: group(client, topic, seconds, "two"),
}


def main() -> None:
    """Do one job."""
    name, url, topic, seconds = sys.argv[1:]
    with connect(url) as client:
        print(json.dumps(JOBS[name](client, topic, float(seconds))), flush=True)


if __name__ == "__main__":
    main()

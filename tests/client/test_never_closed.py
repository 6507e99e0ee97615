"""A producer that nobody closes loses nothing; a failure that was handled is not raised again."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import Client, connect
from headrace.core.errors import InvalidInput, InvalidMessage
from tests.server_process import ROOT, ServerProcess

PATIENCE_SECONDS = 60.0
MESSAGES = 1000

NEVER_CLOSED = """
import sys
import headrace

client = headrace.connect(sys.argv[1])
producer = client.producer("orders", timeout_seconds=60)
for number in range(int(sys.argv[2])):
    producer.send(b"%d" % number)
"""


def test_at_the_end_of_the_process_everything_is_sent_with_a_warning(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path / 'store'}")
    try:
        with connect(server.url) as client:
            client.create_topic("orders")
            command = [sys.executable, "-W", "default", "-c", NEVER_CLOSED, server.url, str(MESSAGES)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            assert done.returncode == 0, done.stderr
            assert "ResourceWarning: a producer of topic 'orders' was never closed" in done.stderr
            assert client.offsets("orders") == {0: (0, MESSAGES)}
    finally:
        server.close()


def test_garbage_is_sent_too_with_a_warning(client: Client) -> None:
    client.create_topic("orders")
    producer = client.producer("orders")
    for number in range(10):
        producer.send(b"%d" % number)
    with pytest.warns(ResourceWarning, match="a producer of topic 'orders' was never closed"):
        del producer
        gc.collect()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.offsets("orders") != {0: (0, 10)}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_failure_that_was_handled_is_not_raised_again(client: Client) -> None:
    client.create_topic("orders")
    bad = pa.record_batch({"value": pa.array([b"x"]), "partition": pa.array([9], pa.int32())})
    with client.producer("orders") as producer:
        with pytest.raises(InvalidMessage):
            producer.send_batch(bad)
        producer.flush()
        with pytest.raises(InvalidMessage):
            producer.submit_batch(bad).result(PATIENCE_SECONDS)
        producer.send(b"good")
    assert client.read("orders").num_rows == 1


def test_a_failure_that_nobody_looked_at_is_raised(client: Client) -> None:
    client.create_topic("orders")
    bad = pa.record_batch({"value": pa.array([b"x"]), "partition": pa.array([9], pa.int32())})
    with pytest.raises(InvalidInput), client.producer("orders") as producer:
        with pytest.raises(InvalidMessage):
            producer.send_batch(bad)
        producer.submit_batch(bad)
    with client.producer("orders") as producer:
        producer.submit_batch(bad)
        with pytest.raises(InvalidMessage):
            producer.flush()
        for _ in range(200):
            with pytest.raises(InvalidMessage):
                producer.send_batch(bad)


def test_one_message_alone_waits_for_no_timer(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders", linger_seconds=3600.0) as producer:
        for number in range(3):
            assert producer.send(b"alone").result(PATIENCE_SECONDS).offset == number


def test_messages_are_collected_while_others_are_under_way_and_go_with_the_answer(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders", linger_seconds=3600.0) as producer:
        futures = [producer.send(b"%d" % number) for number in range(1000)]
        assert [future.result(PATIENCE_SECONDS).offset for future in futures] == list(range(1000))

"""What a program can tell its consumer: pause and resume, partitions of its choice, offsets to commit, and to stop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from headrace.aio import AsyncClient
from headrace.client import Client, Consumer, connect
from headrace.core.errors import Closed, GroupSizeConflict, InvalidInput, PartitionNotFound
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.server_process import ROOT, ServerProcess


@pytest.fixture
def filled(client: Client) -> Client:
    """A topic of two partitions with ten messages each."""
    client.create_topic("orders", partitions=2)
    fill(client, 20)
    return client


def fill(client: Client, count: int, first: int = 0) -> None:
    with client.producer("orders") as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, partition=number % 2)


def take(consumer: Consumer, count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        batch = consumer.poll(count - len(values), timeout=PATIENCE_SECONDS)
        assert batch.num_rows, values
        values += map(int, batch.column("value").to_pylist())
    return values


# Pause and resume


@pytest.mark.parametrize("group", [None, "billing"])
def test_a_paused_partition_waits_where_it_is(filled: Client, group: str | None) -> None:
    with filled.consumer("orders", group) as consumer:
        take(consumer, 2)
        before = consumer.positions()
        consumer.pause([1])
        assert (consumer.paused, consumer.assignment) == ([1], [0, 1])
        assert take(consumer, 10 - before[0]) == [number for number in range(20) if number % 2 == 0][before[0] :]
        assert consumer.poll(timeout=0.05).num_rows == 0
        consumer.pause()
        consumer.resume([1])
        assert consumer.paused == [0]
        assert take(consumer, 10 - before[1]) == [number for number in range(20) if number % 2][before[1] :]
        consumer.resume()
        consumer.resume()
        fill(filled, 1, first=20)
        assert take(consumer, 1) == [20]
        with pytest.raises(InvalidInput, match=r"this consumer reads \[0, 1\]"):
            consumer.pause([2])


def test_partitions_that_are_added_while_something_is_paused_come_with_resume(filled: Client) -> None:
    with filled.consumer("orders") as consumer:
        take(consumer, 20)
        consumer.pause([0])
        filled.alter_topic("orders", partitions=3)
        with filled.producer("orders") as producer:
            producer.send(b"99", partition=2)
        assert consumer.poll(timeout=0.05).num_rows == 0
        consumer.resume()
        assert take(consumer, 1) == [99]


# Partitions of one's choice


def test_chosen_partitions_are_read_without_a_group(filled: Client) -> None:
    with filled.consumer("orders", partitions=[1]) as consumer:
        assert take(consumer, 10) == list(range(1, 20, 2))
        assert consumer.assignment == [1]
        consumer.seek("earliest")
        assert consumer.positions() == {1: 0}
        filled.alter_topic("orders", partitions=3)
        with filled.producer("orders") as producer:
            producer.send(b"99", partition=2).result()
        assert take(consumer, 10) == list(range(1, 20, 2))
        assert consumer.poll(timeout=0.05).num_rows == 0, "only what was chosen"


def test_chosen_partitions_of_a_group_are_committed_for_it(filled: Client) -> None:
    with filled.consumer("orders", "billing", partitions=[1]) as consumer:
        take(consumer, 4)
        assert consumer.commit() == []
    assert filled.committed("orders", "billing") == {1: 4}
    assert filled.describe_group("orders", "billing").members == {}
    with filled.consumer("orders", "billing", partitions=[1, 0, 1]) as consumer:
        assert sorted(take(consumer, 16)) == sorted({*range(20)} - {1, 3, 5, 7})
        filled.seek("orders", "billing", {1: 9})
        assert consumer.commit() == [0, 1], "a seek wins"
        assert sorted(take(consumer, 11)) == [*range(0, 20, 2), 19]
        with filled.consumer("orders", "billing"), pytest.raises(GroupSizeConflict, match="commit as one of them"):
            consumer.commit({0: 1})


def test_partitions_are_chosen_by_number(filled: Client) -> None:
    for wrong in ([], ["0"]):
        with pytest.raises(InvalidInput, match="partitions is"):
            filled.consumer("orders", partitions=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not a member"):
        filled.consumer("orders", "billing", partitions=[0], member_id="me")
    for group in (None, "billing"):
        with pytest.raises(PartitionNotFound):
            filled.consumer("orders", group, partitions=[2])


# Offsets to commit


def test_given_offsets_are_committed(filled: Client) -> None:
    with filled.consumer("orders", "billing") as consumer:
        take(consumer, 20)
        assert consumer.commit({0: 3}) == []
        assert filled.committed("orders", "billing") == {0: 3}
        assert consumer.commit() == []
        assert filled.committed("orders", "billing") == {0: 10, 1: 10}
        with pytest.raises(InvalidInput, match="offset is -1"):
            consumer.commit({0: -1})


def test_given_offsets_of_others_are_reported(filled: Client) -> None:
    filled.register_group("orders", "fixed", consumers=2)
    with filled.consumer("orders", "fixed", consumer_index=0) as consumer:
        assert consumer.commit({0: 1, 1: 1}) == [1]
        assert filled.committed("orders", "fixed") == {0: 1}


# Stopping


def test_stop_ends_a_poll_and_a_loop_in_another_thread(filled: Client) -> None:
    with filled.consumer("orders", "billing") as consumer:
        take(consumer, 20)
        stopper = threading.Timer(0.05, consumer.stop)
        stopper.start()
        assert consumer.poll(timeout=None).num_rows == 0
        assert consumer.is_stopped and not consumer.is_closed
        assert list(consumer) == []
        assert consumer.commit() == [], "what was returned can still be committed"
        stopper.join()
    assert filled.committed("orders", "billing") == {0: 10, 1: 10}


def test_a_loop_ends_after_the_message_in_which_it_is_stopped(filled: Client) -> None:
    with filled.consumer("orders", "billing") as consumer:
        given = []
        for message in consumer:
            given.append(message)
            if len(given) == 3:
                consumer.stop()
        assert len(given) == 3
        consumer.commit()
    assert sum(filled.committed("orders", "billing").values()) == 3


def test_a_consumer_closed_from_another_thread_ends_its_loop(filled: Client) -> None:
    with filled.consumer("orders", "billing") as consumer:
        threading.Timer(0.1, consumer.close).start()
        assert len(list(consumer)) <= 20
        eventually(lambda: filled.describe_group("orders", "billing").members == {})
        with pytest.raises(Closed):
            consumer.poll()


def test_close_in_a_callback_takes_effect_when_the_poll_returns(filled: Client) -> None:
    consumer: Consumer
    made: list[Consumer] = []
    with filled.consumer("orders", "billing", on_revoked=lambda _: made[0].close()) as consumer:
        made.append(consumer)
        with filled.consumer("orders", "billing") as other:

            def is_over() -> bool:
                if not consumer.is_closed:
                    consumer.poll(timeout=0.05)
                return consumer.is_closed

            eventually(is_over)
            eventually(lambda: other.poll(timeout=0.01) is not None and len(other.assignment) == 2)


def test_an_async_loop_is_stopped(filled: Client) -> None:
    async def main() -> int:
        count = 0
        async with AsyncClient(filled).consumer("orders", group="billing") as consumer:
            asyncio.get_running_loop().call_later(0.3, consumer.stop)
            async for _ in consumer:
                count += 1
            assert consumer.is_stopped
            assert await consumer.commit() == []
            await consumer.pause()
            assert consumer.paused == [0, 1]
            await consumer.resume()
            assert (await consumer.poll(timeout=None)).num_rows == 0
        return count

    assert asyncio.run(main()) == 20
    assert filled.committed("orders", "billing") == {0: 10, 1: 10}


LOOPS = {
    "stop": "signal.signal(signal.SIGTERM, lambda *_: consumer.stop())",
    "close": "signal.signal(signal.SIGTERM, lambda *_: consumer.close())",
}


@pytest.mark.parametrize("way", LOOPS)
def test_a_signal_handler_ends_the_loop_and_the_member_leaves(way: str) -> None:
    program = f"""
import signal, sys, headrace
with headrace.connect(sys.argv[1]) as client, client.consumer("orders", "billing", auto_commit=True) as consumer:
    {LOOPS[way]}
    for message in consumer:
        print(message.offset, flush=True)
print("ended", consumer.is_closed)
"""
    server = ServerProcess("memory:")
    try:
        with connect(server.url) as client:
            client.create_topic("orders")
            with client.producer("orders") as producer:
                producer.send(b"one")
            command = [sys.executable, "-c", program, server.url]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "0\n"
                process.send_signal(signal.SIGTERM)
                assert process.stdout.read() == "ended True\n"
            assert process.returncode == 0
            assert client.committed("orders", "billing") == {0: 1}
            assert client.describe_group("orders", "billing").members == {}
    finally:
        server.close()

"""A server process that is killed and started again, under producers and consumers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.client import Client, Producer, Receipt, connect
from headrace.core.errors import AnswerLost, OutcomeUnknown, Unreachable
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.ports import ReservedPort
from tests.server_process import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(f"file:{tmp_path / 'store'}")
    yield process
    process.close()


@pytest.fixture(params=["flight", "native"])
def publishing_server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server to which clients publish over one wire or the other."""
    if request.param == "flight":
        process = ServerProcess(f"file:{tmp_path / 'store'}")
        yield process
        process.close()
        return
    with ReservedPort() as port:
        process = ServerProcess(f"file:{tmp_path / 'store'}", "--native", f"127.0.0.1:{port.number}")
        yield process
        process.close()


def check_wire(client: Client, server: ServerProcess) -> None:
    """The client publishes over the wire that the server was started for."""
    is_native = any(each.protocol == "native" for each in client.list_clients())
    assert is_native == ("native" in client.list_servers()[0].addresses)


def values_of(client: Client, topic: str) -> list[bytes]:
    batches = [client.read(topic, partition, 0, 1_000_000) for partition in client.offsets(topic)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_producer_with_an_id_loses_nothing_and_doubles_nothing(publishing_server: ServerProcess) -> None:
    server = publishing_server
    with connect(server.url) as client:
        client.create_topic("orders", partitions=3)
        futures: list[Future[Receipt]] = []

        def kill_again_and_again() -> None:
            for _ in range(4):
                # However slow the machine is, what was sent until now comes through before the next kill.
                futures[-1].result(PATIENCE_SECONDS)
                server.kill()
                server.start()

        with (
            client.producer("orders", producer_id="p", batch_bytes_max=20_000, linger_seconds=0.001) as producer,
            ThreadPoolExecutor(1) as killer,
        ):
            futures.append(producer.send(b"0"))
            killing = killer.submit(kill_again_and_again)
            while not killing.done() or len(futures) <= 1_000:
                futures += [producer.send(b"%d" % (len(futures) + place), key=b"%d" % place) for place in range(50)]
                time.sleep(0.002)
            killing.result()
        receipts = [future.result(PATIENCE_SECONDS) for future in futures]
        check_wire(client, server)
        assert len(receipts) > 1_000
        assert Counter(values_of(client, "orders")) == Counter(b"%d" % number for number in range(len(futures)))
        places = [(receipt.partition, receipt.offset) for receipt in receipts if receipt.status == "written"]
        assert len(places) == len(set(places))


def test_producer_that_waits_for_each_message_loses_nothing_and_doubles_nothing(
    publishing_server: ServerProcess,
) -> None:
    server = publishing_server
    with connect(server.url) as client, ThreadPoolExecutor(1) as killer:
        client.create_topic("orders")

        def kill() -> None:
            server.kill()
            server.start()

        with client.producer("orders", producer_id="p") as producer:
            for number in range(300):
                killing = killer.submit(kill) if number % 100 == 50 else None
                assert producer.send(b"%d" % number).result(PATIENCE_SECONDS).status in ("written", "duplicate")
                if killing is not None:
                    # Some are sent while it ends and begins.
                    while not killing.done():
                        producer.send(b"more").result(PATIENCE_SECONDS)
                    killing.result()
            check_wire(client, server)
        found = Counter(values_of(client, "orders"))
        del found[b"more"]
        assert found == Counter(b"%d" % number for number in range(300))


def until_under_way(producer: Producer) -> None:
    """Wait until something was sent that is not answered."""
    unanswered = producer._sender._unanswered
    eventually(lambda: any(pending.was_sent for pending in list(unanswered)))


def test_producer_without_an_id_doubles_nothing_and_says_what_it_does_not_know(
    publishing_server: ServerProcess,
) -> None:
    server = publishing_server
    with connect(server.url) as client:
        client.create_topic("orders")
        outcomes: dict[bytes, Future[Receipt]] = {}
        with client.producer("orders", linger_seconds=0.001) as producer:
            for number in range(3_000):
                is_last = number in (1_000, 2_000)
                if is_last:
                    # Once this one is known there is a connection, and something can be under way.
                    outcomes[b"%d" % (number - 1)].exception(PATIENCE_SECONDS)
                    server.freeze()
                outcomes[b"%d" % number] = producer.send(b"%d" % number)
                if is_last:
                    until_under_way(producer)
                    server.kill()
                    server.start()
            with pytest.raises(OutcomeUnknown):
                producer.flush()
            check_wire(client, server)
        failed = {value for value, future in outcomes.items() if future.exception(PATIENCE_SECONDS)}
        assert all(isinstance(outcomes[value].exception(), OutcomeUnknown) for value in failed)
        counts = Counter(values_of(client, "orders"))
        assert max(counts.values()) == 1
        assert set(outcomes) - failed <= set(counts)


def test_consumers_of_a_group_continue_and_lose_nothing(publishing_server: ServerProcess) -> None:
    server = publishing_server
    with connect(server.url) as client:
        client.create_topic("orders", partitions=4)
        seen: Counter[bytes] = Counter()
        committed: Counter[bytes] = Counter()
        sent = 0
        with (
            client.producer("orders", producer_id="p") as producer,
            client.consumer("orders", group="billing", session_timeout_seconds=600) as consumer,
        ):
            for round_number in range(3):
                for _ in range(2_000):
                    producer.send(b"%d" % sent, key=b"%d" % sent)
                    sent += 1
                if round_number:
                    server.kill()
                    server.start()
                while len(seen) < sent:
                    values = consumer.poll(500, timeout=PATIENCE_SECONDS).column("value").to_pylist()
                    assert values, f"only {len(seen)} of {sent} came"
                    seen.update(values)
                    consumer.commit()
                    committed.update(values)
            producer.flush()
            assert len(seen) == sent
            assert set(seen.values()) == {1}, "one member alone, that never lost its place, sees nothing twice"
            assert client.describe_group("orders", "billing").lag_messages == 0


def test_calls_wait_for_the_server_and_give_up_in_time(server: ServerProcess) -> None:
    with connect(server.url, timeout_seconds=60) as client, connect(server.url, timeout_seconds=0.3) as hasty:
        client.create_topic("orders")
        hasty.list_topics()
        server.kill()
        with pytest.raises(Unreachable):
            hasty.list_topics()
        with pytest.raises(AnswerLost):
            # Deleting twice is not the same as once, so it is not repeated.
            client.delete_topic("orders")
        restart = threading.Timer(0.5, server.start)
        restart.start()
        assert client.list_topics() == ["orders"]
        restart.join()


def test_second_address_is_used_when_the_first_is_dead(server: ServerProcess) -> None:
    with connect(f"headrace://127.0.0.1:1,{server.url}") as client:
        client.create_topic("orders")
        assert client.list_topics() == ["orders"]
    with connect("headrace://127.0.0.1:1,headrace://127.0.0.1:2", timeout_seconds=0.1) as client:
        with pytest.raises(Unreachable) as nobody:
            client.list_topics()
        assert "127.0.0.1:1" in str(nobody.value) and "127.0.0.1:2" in str(nobody.value)

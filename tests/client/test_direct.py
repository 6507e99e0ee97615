"""A message that its sender waits for is written, and its answer read, in the thread of the sender; in every state."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pytest

from headrace.client import Client, Producer, connect
from headrace.client.producer import stream
from headrace.client.transport.native import NativeUpload
from headrace.core.errors import Closed, InvalidInput, OutcomeUnknown, Overloaded
from headrace.protocols.native.settings import NativeSettings
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.client.test_native import Site, site_of
from tests.server_process import ROOT

MAIN: Final = threading.main_thread()


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of(NativeSettings()) as made:
        yield made


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with connect(site.url) as made:
        yield made


def begin(producer: Producer) -> None:
    """Send until answers are left to callers: at first threads open a stream, and read it."""
    eventually(lambda: producer.send(b"first").result(PATIENCE_SECONDS) and is_left_to_callers(producer))


def is_left_to_callers(producer: Producer) -> bool:
    stream = producer._sender._stream
    return stream is not None and not stream._is_attended


def is_waited_for(producer: Producer) -> bool:
    """Whether a caller waits for an answer, which it will read."""
    stream = producer._sender._stream
    return stream is not None and stream._callers > 0


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[threading.Thread]]:
    """Which threads wrote messages and read answers."""
    called: dict[str, list[threading.Thread]] = {"write_message": [], "read_answer": []}

    def watch(name: str) -> None:
        original: Callable[..., Any] = getattr(NativeUpload, name)

        def watched(upload: NativeUpload, *given: Any) -> Any:
            called[name].append(threading.current_thread())
            return original(upload, *given)

        monkeypatch.setattr(NativeUpload, name, watched)

    for name in called:
        watch(name)
    return called


def test_who_waits_for_each_writes_and_reads_by_itself(
    client: Client, site: Site, threads: dict[str, list[threading.Thread]]
) -> None:
    with client.producer("orders", producer_id="till") as producer:
        begin(producer)
        for each in threads.values():
            each.clear()
        receipts = [
            producer.send(b"v", key=b"k", partition=0).result(PATIENCE_SECONDS),
            producer.send(None, attributes={"a": b"1", "n": None}, partition=1).result(PATIENCE_SECONDS),
        ]
        assert [receipt.status for receipt in receipts] == ["written", "written"]
        assert threads == {"write_message": [MAIN] * 2, "read_answer": [MAIN] * 2}
        last = producer.last_seqno
        assert last is not None
        # What others read is the same.
        assert producer.send(b"w").exception(PATIENCE_SECONDS) is None
        assert producer.last_seqno == last + 1
    rows = client.read("orders", receipts[1].partition or 0, receipts[1].offset or 0).to_pylist()
    assert (rows[0]["value"], rows[0]["attributes"]) == (None, [("a", b"1"), ("n", None)])
    assert rows[0]["producer_id"] == "till"


def callbacks(future: Future[Any]) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(PATIENCE_SECONDS)


def wait(future: Future[Any]) -> None:
    assert concurrent.futures.wait([future], PATIENCE_SECONDS).done == {future}


def loop(future: Future[Any]) -> None:
    async def awaited() -> None:
        await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE_SECONDS)

    asyncio.run(awaited())


def looks(future: Future[Any]) -> None:
    eventually(future.done)


@pytest.mark.parametrize("learn", [callbacks, wait, loop, looks], ids=lambda learn: str(learn.__name__))
def test_an_answer_that_no_caller_waits_for_is_read_all_the_same(
    client: Client, learn: Callable[[Future[Any]], None]
) -> None:
    with client.producer("orders", linger_seconds=3600.0) as producer:
        begin(producer)
        future = producer.send(b"v")
        learn(future)
        assert future.result(0).status == "written"


def test_answers_that_nobody_asks_for_do_not_stop_what_follows(client: Client, site: Site) -> None:
    with client.producer("orders", linger_seconds=3600.0) as producer:
        begin(producer)
        before = len(site.values())
        for number in range(1_000):
            producer.send(b"%d" % number)
        # Without a flush: the first answer makes the rest due.
        eventually(lambda: len(site.values()) == before + 1_000)
        producer.flush()
        begin(producer)


def test_a_caller_whose_time_is_over_leaves_the_answer_to_the_thread(client: Client, site: Site) -> None:
    with client.producer("orders") as producer:
        begin(producer)
        site.proxy.answers.clear()
        future = producer.send(b"v")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        # Meanwhile others are collected.
        later = producer.send(b"w")
        site.proxy.answers.set()
        assert later.result(PATIENCE_SECONDS).status == "written"
        assert future.result(0).status == "written"


def test_the_rest_of_an_answer_is_left_to_the_thread(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread does not look by itself whether an answer was left behind.
    monkeypatch.setattr(stream, "_LOOK_SECONDS", PATIENCE_SECONDS)
    with client.producer("orders") as producer, ThreadPoolExecutor(1) as pool:
        begin(producer)
        site.proxy.answers.clear()
        site.proxy.rests.clear()
        future = producer.send(b"v")
        waiting = pool.submit(future.result, PATIENCE_SECONDS)
        eventually(lambda: is_waited_for(producer))
        site.proxy.answers.set()
        eventually(lambda: not is_left_to_callers(producer))
        with pytest.raises(TimeoutError):
            future.result(0.01)
        with pytest.raises(Overloaded):
            producer.flush(0.01)
        site.proxy.rests.set()
        assert waiting.result(PATIENCE_SECONDS).status == "written"


@pytest.mark.parametrize("producer_id", ["till", None])
def test_a_connection_that_breaks_under_a_waiting_caller(client: Client, site: Site, producer_id: str | None) -> None:
    with client.producer("orders", producer_id=producer_id) as producer:
        begin(producer)
        site.proxy.answers.clear()
        future = producer.send(b"once", attributes={"a": b"1"}, partition=0)
        eventually(lambda: b"once" in site.values())
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(future.exception, PATIENCE_SECONDS)
            eventually(lambda: is_waited_for(producer))
            site.proxy.cut()
            site.proxy.answers.set()
            error = waiting.result(PATIENCE_SECONDS)
        if producer_id is None:
            assert isinstance(error, OutcomeUnknown)
        else:
            assert future.result().status == "duplicate"
        assert producer.send(b"next").result(PATIENCE_SECONDS).status == "written"
    assert Counter(site.values())[b"once"] == Counter(site.values())[b"next"] == 1


def test_a_connection_that_ended_while_nothing_was_sent_was_asked_nothing(client: Client, site: Site) -> None:
    with client.producer("orders") as producer:
        for number in range(5):
            begin(producer)
            stream = producer._sender._stream
            assert stream is not None
            site.proxy.cut()
            eventually(lambda: stream.is_over or not stream.may_write_now())  # noqa: B023
            assert producer.send(b"%d" % number).result(PATIENCE_SECONDS).status == "written"


def interrupt_main() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_a_caller_waits_loses_nothing(client: Client, site: Site) -> None:
    with client.producer("orders") as producer:
        begin(producer)
        stream = producer._sender._stream
        assert stream is not None
        site.proxy.answers.clear()
        future = producer.send(b"v")
        with ThreadPoolExecutor(1) as pool:

            def interrupt() -> None:
                eventually(lambda: is_waited_for(producer))
                interrupt_main()

            interrupting = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                future.result(PATIENCE_SECONDS)
            interrupting.result()
        assert not future.done()
        site.proxy.answers.set()
        assert future.result(PATIENCE_SECONDS).status == "written"
        assert producer._sender._stream is stream


def test_a_signal_handler_may_close_the_producer_whose_answer_is_waited_for(client: Client, site: Site) -> None:
    producer = client.producer("orders", timeout_seconds=PATIENCE_SECONDS)
    begin(producer)
    site.proxy.answers.clear()
    futures = [producer.send(b"v")]

    def close(*_: object) -> None:
        futures.append(producer.send(b"last"))
        site.proxy.answers.set()
        assert futures[1].result(PATIENCE_SECONDS).status == "written"
        producer.close()

    before = signal.signal(signal.SIGINT, close)
    try:
        with ThreadPoolExecutor(1) as pool:

            def interrupt() -> None:
                eventually(lambda: is_waited_for(producer))
                interrupt_main()

            interrupting = pool.submit(interrupt)
            assert futures[0].result(PATIENCE_SECONDS).status == "written"
            interrupting.result()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("method", ["write_message", "read_answer"])
@pytest.mark.parametrize("producer_id", ["till", None])
def test_an_interrupt_that_may_have_lost_a_part_sends_again_what_may_be_sent_again(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch, method: str, producer_id: str | None
) -> None:
    original: Callable[..., Any] = getattr(NativeUpload, method)

    def interrupted_after(upload: NativeUpload, *given: Any) -> Any:
        original(upload, *given)
        monkeypatch.setattr(NativeUpload, method, original)
        raise KeyboardInterrupt

    with client.producer("orders", producer_id=producer_id) as producer:
        begin(producer)
        monkeypatch.setattr(NativeUpload, method, interrupted_after)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"once").result(PATIENCE_SECONDS)
        if producer_id is None:
            with pytest.raises(OutcomeUnknown):
                producer.flush()
        else:
            producer.flush()
        assert producer.send(b"next").result(PATIENCE_SECONDS).status == "written"
    eventually(lambda: Counter(site.values())[b"once"] == Counter(site.values())[b"next"] == 1)


def test_a_producer_that_is_closed_ends_those_who_wait(client: Client, site: Site) -> None:
    producer = client.producer("orders", timeout_seconds=0.0)
    begin(producer)
    site.proxy.answers.clear()
    future = producer.send(b"v")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(future.exception, PATIENCE_SECONDS)
        eventually(lambda: is_waited_for(producer))
        producer.close()
        assert isinstance(waiting.result(PATIENCE_SECONDS), OutcomeUnknown)
    with pytest.raises(Closed):
        producer.send(b"w")


@pytest.mark.parametrize("method", ["write_message", "read_answer"])
def test_a_signal_handler_may_close_the_producer_in_the_middle_of_a_call(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    original: Callable[..., Any] = getattr(NativeUpload, method)
    producer = client.producer("orders", timeout_seconds=0.0)
    begin(producer)

    def closing(upload: NativeUpload, *given: Any) -> Any:
        monkeypatch.setattr(NativeUpload, method, original)
        assert threading.current_thread() is MAIN
        signal.raise_signal(signal.SIGINT)
        return original(upload, *given)

    before = signal.signal(signal.SIGINT, lambda *_: producer.close())
    try:
        # The thread leaves the answer to the caller.
        monkeypatch.setattr(stream, "_LOOK_SECONDS", PATIENCE_SECONDS)
        begin(producer)
        monkeypatch.setattr(NativeUpload, method, closing)
        assert producer.send(b"v").result(PATIENCE_SECONDS).status == "written"
    finally:
        signal.signal(signal.SIGINT, before)
    eventually(lambda: not producer._sender._thread.is_alive())
    with pytest.raises(Closed):
        producer.send(b"w")


def test_an_answer_that_arrives_while_a_producer_is_given_up_is_of_no_other_message(client: Client, site: Site) -> None:
    producer = client.producer("orders", timeout_seconds=0.0)
    begin(producer)
    stream = producer._sender._stream
    assert stream is not None
    answers = stream._answers
    site.proxy.answers.clear()
    futures = [producer.submit_batch(pa.record_batch({"value": [b"%d" % number]})) for number in range(2)]
    eventually(lambda: {b"0", b"1"} <= set(site.values()))

    def pass_on(_: Future[Any]) -> None:
        site.proxy.answers.set()
        eventually(lambda: stream._answers == answers + 2)

    # Called in the thread that gives up, before the second message is given up.
    futures[0].add_done_callback(pass_on)
    producer._sender.close(0.0)
    assert [type(future.exception(0)) for future in futures] == [OutcomeUnknown] * 2
    assert stream._answers == answers + 2


def test_threads_that_share_a_producer_write_everything_once(client: Client, site: Site) -> None:
    with client.producer("orders", producer_id="till") as producer:
        begin(producer)

        def publish(number: int) -> None:
            for count in range(50):
                assert producer.send(b"%d" % (number * 50 + count)).result(PATIENCE_SECONDS).status == "written"
                if not (number + count) % 7:
                    # So that it is alone now and then.
                    time.sleep(0.001)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(publish, range(4)))
    found = Counter(site.values())
    del found[b"first"]
    assert found == Counter(b"%d" % number for number in range(200))


def test_a_batch_with_a_column_that_is_unknown_fails_alone(client: Client, site: Site) -> None:
    with client.producer("orders") as producer:
        begin(producer)
        for column, values in (("colour", pa.array([b"red"])), ("attributes", pa.array([1])), ("key", pa.array([1]))):
            with pytest.raises(InvalidInput, match=column):
                producer.submit_batch(pa.record_batch({"value": pa.array([b"x"]), column: values}))
        assert producer.send(b"2").result(PATIENCE_SECONDS).status == "written"
    assert b"x" not in site.values()


FORKED: Final = """
import os, sys
import headrace
from headrace.core.errors import Forked
client = headrace.connect(sys.argv[1])
producer = client.producer("orders")
for _ in range(50):
    producer.send(b"v").result()
future = producer.send(b"v")
child = os.fork()
if child == 0:
    try:
        future.result()
    except Forked:
        os._exit(7)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert future.result().status == "written"
producer.close()
sys.exit(code)
"""


def test_a_forked_process_does_not_read_the_answers_of_its_parent(site: Site) -> None:
    command = [sys.executable, "-W", "error", "-c", FORKED, site.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (7, "")

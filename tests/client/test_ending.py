"""What ends while something is under way: a member that leaves during its heartbeat, a producer without answers."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.submission import Submission
from headrace.client import Client
from headrace.client.transport.flight import deadline_seconds
from headrace.core.errors import Closed, OutcomeUnknown, TopicNotFound
from headrace.core.publish.receipts import Receipts
from headrace.testing import EmbeddedTransport
from headrace.testing.transport import EmbeddedUpload
from headrace.wire.operations import AwaitOffsets, CommitOffsets, CreateTopic, Heartbeat, LeaveGroup, Operation
from tests.broker.background import eventually

PATIENCE_SECONDS = 60.0


def end_of(thread_name: str) -> None:
    """Wait for the threads of a name."""
    for thread in threading.enumerate():
        if thread.name == thread_name:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


class SlowHeartbeat(EmbeddedTransport):
    """A way on which a heartbeat arrives only after the member has left."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.beating = threading.Event()
        self.left = threading.Event()

    def call(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Heartbeat):
            self.beating.set()
            assert self.left.wait(PATIENCE_SECONDS)
        answer = super().call(operation)
        if isinstance(operation, LeaveGroup):
            self.left.set()
        return answer


def test_a_member_that_has_left_is_not_brought_back_by_its_last_heartbeat(broker: Broker) -> None:
    transport = SlowHeartbeat(broker)
    with Client(transport) as client:
        client.create_topic("orders")
        consumer = client.consumer("orders", group="billing", session_timeout_seconds=3_600)
        assert transport.beating.wait(PATIENCE_SECONDS)
        consumer.close()
        end_of("headrace-heartbeat")
        assert not client.describe_group("orders", "billing").members


def reading_ahead() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "headrace-prefetch"}


class FailingCommits(EmbeddedTransport):
    """A way on which no commit arrives."""

    def call(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, CommitOffsets):
            raise TopicNotFound(operation.topic)
        return super().call(operation)


def test_a_consumer_that_cannot_commit_at_its_end_still_ends(broker: Broker) -> None:
    with Client(FailingCommits(broker)) as client:
        client.create_topic("orders")
        with client.producer("orders") as producer:
            producer.send(b"1")
        before = reading_ahead()
        consumer = client.consumer("orders", group="billing", auto_commit=True)
        assert consumer.poll(timeout=PATIENCE_SECONDS).num_rows == 1
        started = reading_ahead() - before
        with pytest.raises(TopicNotFound):
            consumer.close()
        assert consumer.is_closed
        assert not client.describe_group("orders", "billing").members
        for thread in started:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def test_a_consumer_that_fails_at_its_beginning_leaves_its_group(broker: Broker) -> None:
    def refuse(partitions: list[int]) -> None:
        raise ValueError(partitions)

    with Client(EmbeddedTransport(broker)) as client:
        client.create_topic("orders")
        before = reading_ahead()
        with pytest.raises(ValueError, match="0"):
            client.consumer("orders", group="billing", on_assigned=refuse)
        assert not client.describe_group("orders", "billing").members
        for thread in reading_ahead() - before:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


class SlowAnswers(EmbeddedTransport):
    """A way on which answers come when they may."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.may_answer = threading.Event()

    def upload(self, command: Any, schema: Any) -> EmbeddedUpload:
        upload, read = super().upload(command, schema), EmbeddedUpload.read

        def read_later() -> Any:
            assert self.may_answer.wait(PATIENCE_SECONDS)
            return read(upload)

        upload.read = read_later  # type: ignore[method-assign]
        return upload


def test_answers_that_come_after_the_end_do_no_harm(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    transport = SlowAnswers(broker)
    with Client(transport) as client:
        client.create_topic("orders")
        producer = client.producer("orders", linger_seconds=0.0, timeout_seconds=0.0)
        futures = [producer.send(b"%d" % number, timeout=PATIENCE_SECONDS) for number in range(40)]
        notifications = client.await_offsets("orders", {0: 0}, wait_seconds=PATIENCE_SECONDS)
        assert notifications[0][1] > 0, "the first message is written, and its answer is held back"
        producer.close()
        with pytest.raises(OutcomeUnknown):
            futures[0].result(PATIENCE_SECONDS)
        for future in futures:
            with pytest.raises((OutcomeUnknown, Closed)):
                future.result(PATIENCE_SECONDS)
        transport.may_answer.set()
        end_of("headrace-producer")
        end_of("headrace-receipts")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_message_that_waits_behind_answers_fails_at_the_end(broker: Broker) -> None:
    transport = SlowAnswers(broker)
    with Client(transport) as client:
        client.create_topic("orders")
        producer = client.producer("orders", linger_seconds=0.0, timeout_seconds=0.0)
        first = producer.submit_batch(pa.record_batch({"value": [b"1"]}), timeout=PATIENCE_SECONDS)
        client.await_offsets("orders", {0: 0}, wait_seconds=PATIENCE_SECONDS)
        # Other columns need another stream, which begins when everything on the first is answered.
        second = producer.submit_batch(pa.record_batch({"value": [b"2"], "key": [b"k"]}), timeout=PATIENCE_SECONDS)
        eventually(lambda: producer._sender._stream is None)
        producer.close()
        with pytest.raises(OutcomeUnknown):
            first.result(0)
        with pytest.raises(Closed):
            second.result(0)
        transport.may_answer.set()
        end_of("headrace-producer")
        assert client.read("orders").column("value").to_pylist() == [b"1"]


def test_what_may_be_written_is_not_sent_again_without_an_id(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    result, failures = TopicIntake.result, [OutcomeUnknown("orders", "the disk does not say")]

    def written_and_failed_once(intake: TopicIntake, submission: Submission) -> Receipts | Exception:
        outcome = result(intake, submission)
        return failures.pop() if failures else outcome

    monkeypatch.setattr(TopicIntake, "result", written_and_failed_once)
    with Client(EmbeddedTransport(broker)) as client:
        client.create_topic("orders")
        with client.producer("orders") as producer:
            with pytest.raises(OutcomeUnknown):
                producer.send(b"once").result(PATIENCE_SECONDS)
            producer.send(b"next").result(PATIENCE_SECONDS)
        assert client.read("orders").column("value").to_pylist() == [b"once", b"next"]


def test_an_answer_may_take_as_long_as_was_asked_for() -> None:
    usual = deadline_seconds(CreateTopic("orders"))
    assert deadline_seconds(AwaitOffsets("orders", {0: 0}, wait_seconds=90.0)) == usual + 90.0

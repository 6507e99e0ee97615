"""Transactions to one topic, and what is refused of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import RawCursus
from tests.protocols.cursus.test_client import written


class Session:
    """A transactional producer, as its client knows itself."""

    def __init__(self, client: RawCursus, name: str) -> None:
        self.client, self.name = client, name
        fields = dict(field.split("=") for field in client.ask(f"INIT_PRODUCER_ID transactional_id={name}").split()[1:])
        self.producer, self.epoch = fields["producerId"], int(fields["epoch"])
        self.number = 0

    def ask(self, command: str, more: str = "") -> str:
        named = f"transactional_id={self.name} producerId={self.producer} epoch={self.epoch}"
        return self.client.ask(f"{command} {named} {more}")

    def publish(self, topic: str, message: str, partition: int = 0) -> str:
        self.number += 1
        return self.ask("TXN_PUBLISH", f"topic={topic} partition={partition} seqNum={self.number} message={message}")


def test_a_transaction_is_written_at_once_or_not_at_all(site: CursusSite, client: RawCursus, topic: str) -> None:
    one = Session(client, topic)
    assert one.ask("BEGIN_TXN").startswith(f"OK transactional_id={topic} state=open")
    staged = f"OK transactional_id={topic} staged_messages=1 topic={topic}"
    assert one.publish(topic, "a") == f"{staged} partition=0"
    assert one.publish(topic, "b", partition=1) == f"{staged} partition=1"
    one.number -= 1
    # Sent again, since its answer was lost.
    assert one.publish(topic, "b", partition=1) == f"{staged} partition=1"
    assert written(site.broker, topic) == []
    assert client.ask(f"TXN_STATUS transactional_id={topic}") == (
        f"OK transactional_id={topic} state=open messages=2 offsets=0"
    )
    committed = f"OK transactional_id={topic} state=committed messages=2 offsets=0"
    assert [one.ask("END_TXN", "result=commit") for _ in range(2)] == [committed, committed]
    assert one.ask("END_TXN", "result=abort") == f"ERROR: transaction_already_committed transactional_id={topic}"
    again = f"ERROR: producer_reinitialization_required transactional_id={topic} epoch=0"
    assert one.ask("BEGIN_TXN") == again
    assert written(site.broker, topic) == ["a", "b"]


def test_what_is_aborted_is_not_written(site: CursusSite, client: RawCursus, topic: str) -> None:
    one = Session(client, topic)
    one.ask("BEGIN_TXN")
    one.publish(topic, "a")
    assert one.ask("END_TXN", "result=abort") == f"OK transactional_id={topic} state=aborted"
    assert one.ask("END_TXN", "result=commit") == f"ERROR: transaction_aborted transactional_id={topic}"
    assert one.publish(topic, "b").startswith("ERROR: transaction_publish_failed")
    assert written(site.broker, topic) == []


def test_a_producer_that_is_replaced_cannot_commit(site: CursusSite, client: RawCursus, topic: str) -> None:
    old = Session(client, topic)
    old.ask("BEGIN_TXN")
    old.publish(topic, "old")
    new = Session(client, topic)
    assert new.epoch == 1
    fenced = f"ERROR: producer_fenced transactional_id={topic} current_epoch=1 requested_epoch=0"
    assert [old.ask("END_TXN", "result=commit"), old.publish(topic, "x"), old.ask("BEGIN_TXN")] == [fenced] * 3
    assert written(site.broker, topic) == []


def test_what_cannot_be_atomic_is_refused(site: CursusSite, client: RawCursus, topic: str) -> None:
    client.ask(f"CREATE topic={topic}.other")
    one = Session(client, topic)
    one.ask("BEGIN_TXN")
    one.publish(topic, "a")
    assert one.publish(f"{topic}.other", "b").startswith("ERROR: transaction_publish_failed reason=")
    offsets = one.ask("SEND_OFFSETS_TO_TXN", f"topic={topic} group=g member=m generation=1 P0:1")
    assert offsets.startswith("ERROR: transaction_offsets_failed reason=")
    assert one.ask("END_TXN", "result=perhaps") == "ERROR: invalid_transaction_result value=perhaps"


def test_credentials_behind_a_message_are_not_a_part_of_it(site: CursusSite, client: RawCursus, topic: str) -> None:
    """The Python client puts them there."""
    one = Session(client, topic)
    one.ask("BEGIN_TXN")
    one.publish(topic, "secret principal=p auth_token=t")
    one.ask("END_TXN", "result=commit")
    assert written(site.broker, topic) == ["secret"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_outcome_is_known_after_a_restart(tmp_path: Path, is_committed: bool) -> None:
    answers = list[str]()
    for _ in range(2):
        listeners = sockets.bind("127.0.0.1", 0)
        with (
            Broker.open(f"file:{tmp_path}/store") as broker,
            CursusServer(broker, broker.access, CursusSettings(), listeners),
            RawCursus(sockets.port_of(listeners)) as client,
        ):
            if not answers:
                client.ask("CREATE topic=t partitions=1")
                one = Session(client, "x")
                one.ask("BEGIN_TXN")
                one.publish("t", "a")
            one.client = client
            answers.append(one.ask("END_TXN", "result=commit") if is_committed or answers else "not ended")
            found = written(broker, "t")
    if is_committed:
        assert answers[1] == "OK transactional_id=x state=committed messages=0 offsets=0"
    else:
        assert answers[1] == "ERROR: transaction_not_found transactional_id=x"
    assert found == ["a"] * is_committed

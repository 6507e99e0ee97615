"""Batches: what is written, what is deduplicated, and what is read again."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from cursus.types import Message

from headrace.core.codecs.columns import compress
from headrace.core.hashes.columns import partition_of
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import PATIENCE_SECONDS, RawCursus, batch, framed, records


def payloads(client: RawCursus, topic: str, partition: int = 0, offset: int = 0) -> list[str]:
    read = client.read(f"CONSUME topic={topic} partition={partition} offset={offset} member=m")
    return [message.payload for message in read]


@pytest.mark.parametrize("acks", ["0", "1", "-1", "all"])
def test_a_batch_is_answered_in_json_whatever_it_waits_for(client: RawCursus, topic: str, acks: str) -> None:
    """With acks of 0 the real server answers OK: its Python client cannot read that, and sends without end."""
    answer = client.acknowledged(batch(topic, records(3), acks=acks))
    assert answer == {
        "status": "OK",
        "producer_epoch": 7,
        "producer_id": "p",
        "seq_start": 1,
        "seq_end": 3,
        "last_offset": 2,
    }
    assert payloads(client, topic) == ["1", "2", "3"]


def test_what_was_sent_is_read_with_its_key_and_event(client: RawCursus, topic: str) -> None:
    sent = Message(
        offset=0,
        seq_num=1,
        payload="häuser",
        producer_id="p",
        key="k",
        epoch=3,
        event_type="Built",
        schema_version=2,
        aggregate_version=9,
        metadata="{}",
    )
    client.acknowledged(batch(topic, [sent], partition=1, is_idempotent=True))
    (read,) = client.read(f"CONSUME topic={topic} partition=1 offset=0 member=m")
    sent.partition = 1
    assert read == sent


def test_the_partition_of_a_batch_is_binding(client: RawCursus, topic: str) -> None:
    key = next(key for key in map(str, range(9)) if partition_of(key.encode(), 2) == 0)
    client.acknowledged(batch(topic, records(1, key=key), partition=1))
    assert payloads(client, topic, 1) == ["1"]
    assert client.publish(batch(topic, records(1), partition=2)) == "ERROR: partition_not_found partition=2"
    answer = client.ask(f"PUBLISH topic={topic} producerId=p key={key} message=by key")
    assert json.loads(answer)["last_offset"] == 0
    assert payloads(client, topic, 0) == ["by key"]


def test_without_a_key_partitions_take_turns(client: RawCursus, topic: str) -> None:
    for number in range(4):
        client.ask(f"PUBLISH topic={topic} producerId=p message={number}")
    assert [payloads(client, topic, partition) for partition in (0, 1)] == [["0", "2"], ["1", "3"]]


def test_an_idempotent_batch_is_written_once(client: RawCursus, topic: str) -> None:
    one, two = (batch(topic, records(3, first), is_idempotent=True) for first in (1, 4))
    assert [client.acknowledged(each)["last_offset"] for each in (one, one, two, one)] == [2, 2, 5, 2]
    assert payloads(client, topic) == list("123456")


def test_a_topic_may_make_all_its_producers_idempotent(client: RawCursus, topic: str) -> None:
    client.ask(f"CREATE topic={topic}.once partitions=1 idempotent=true")
    for _ in range(2):
        client.acknowledged(batch(f"{topic}.once", records(2)))
        client.ask(f"PUBLISH topic={topic}.once producerId=q seqNum=1 message=text")
    assert payloads(client, f"{topic}.once") == ["1", "2", "text"]


def test_a_longer_batch_that_repeats_the_one_before_writes_the_rest(client: RawCursus, topic: str) -> None:
    """The Python client puts a batch that was not answered before its queue, and sends both together."""
    client.acknowledged(batch(topic, records(3), is_idempotent=True))
    assert client.acknowledged(batch(topic, records(7), is_idempotent=True))["last_offset"] == 6
    assert payloads(client, topic) == list("1234567")


def test_numbers_are_by_partition_and_epoch(client: RawCursus, topic: str) -> None:
    for partition, epoch in ((0, 1), (1, 1), (0, 1 << 60)):
        client.acknowledged(batch(topic, records(1, epoch=epoch), partition, is_idempotent=True))
    assert [len(payloads(client, topic, partition)) for partition in (0, 1)] == [2, 1]
    refused = json.loads(client.publish(batch(topic, records(1, 2, epoch=1), is_idempotent=True)))
    assert refused["status"] == "ERROR"
    assert refused["error"].startswith("stale_producer_epoch producer=p")


def test_a_gap_ends_its_producer_with_an_error_that_it_reads(client: RawCursus, topic: str) -> None:
    """The real server closes the connection without an answer."""
    refused = json.loads(client.publish(batch(topic, records(1, 5), is_idempotent=True)))
    assert refused == {"status": "ERROR", "error": "idempotency_gap producer=p expected=1 received=5"}
    assert client.ask(f"PUBLISH topic={topic} producerId=p isIdempotent=true seqNum=5 partition=0 message=x") == (
        "ERROR: idempotency_gap producer=p expected=1 received=5"
    )
    assert payloads(client, topic) == []


def test_a_number_of_0_and_no_flag_deduplicate_nothing(client: RawCursus, topic: str) -> None:
    for body in (batch(topic, records(1)), batch(topic, records(1, 0), is_idempotent=True)):
        client.acknowledged(body)
        client.acknowledged(body)
    assert payloads(client, topic) == ["1", "1", "0", "0"]


@pytest.mark.parametrize(
    ("spoiled", "answer"),
    [
        (lambda body: body[:-1], 'ERROR: batch_decode_failed reason="the records are cut off"'),
        (lambda body: body + b"x", 'ERROR: batch_decode_failed reason="1 bytes after the last record"'),
        (lambda body: body[:9], 'ERROR: batch_decode_failed reason="the header is cut off"'),
        (lambda body: body[:2] + b"\xff\xff" + body[4:], 'ERROR: batch_decode_failed reason="the header is cut off"'),
    ],
    ids=["cut", "longer", "no header", "no topic"],
)
def test_a_spoiled_batch_is_refused_and_writes_nothing(
    client: RawCursus, topic: str, spoiled: object, answer: str
) -> None:
    assert callable(spoiled)
    assert client.publish(spoiled(batch(topic, records(2)))) == answer
    assert payloads(client, topic) == []


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1])
def test_a_count_of_records_that_are_not_there_is_refused(client: RawCursus, topic: str, count: int) -> None:
    body = batch(topic, records(2))
    # Behind magic, topic, partition, acks, flag and two numbers.
    place = 4 + len(topic) + 4 + 2 + 1 + 16
    assert int.from_bytes(body[place : place + 4], "big") == 2
    refused = client.publish(body[:place] + count.to_bytes(4, "big", signed=True) + body[place + 4 :])
    assert refused.startswith("ERROR: batch_decode_failed reason=")


def test_an_empty_batch_and_unknown_acks_are_refused(client: RawCursus, topic: str) -> None:
    assert client.publish(batch(topic, [])) == 'ERROR: broker_error reason="empty batch messages"'
    assert client.publish(batch(topic, records(1), acks="2")) == "ERROR: invalid_acks value=2"
    mixed = records(1) + records(1, 9)
    assert client.publish(batch(topic, mixed, is_idempotent=True)).startswith("ERROR: invalid_seq_num reason=")


def test_a_large_batch_is_read_in_pieces(client: RawCursus, topic: str) -> None:
    """One answer holds 64 KiB here."""
    client.acknowledged(batch(topic, records(500, size=1_000)))
    found, frames = list[str](), 0
    while read := payloads(client, topic, 0, len(found)):
        found += read
        frames += 1
    assert [text.rstrip(".") for text in found] == [str(number) for number in range(1, 501)]
    assert frames > 7


def test_a_message_larger_than_an_answer_is_given_alone(client: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(2, size=200_000)))
    assert [len(each) for each in payloads(client, topic)] == [200_000]


def test_what_others_wrote_is_read_in_plain(site: CursusSite, client: RawCursus, topic: str) -> None:
    """A null value is empty, a codec is undone, and a source of others is named."""
    rows = {"value": [compress(b"plain", "gzip"), None], "key": [None, b"k" * 70_000], "codec": ["gzip", None]}
    site.broker.publish(topic, pa.RecordBatch.from_pydict(rows | {"partition": [0, 0]}))
    numbered = {"value": [b"x"], "producer_id": ["till"], "seqno": [4], "partition": [0]}
    site.broker.publish(topic, pa.RecordBatch.from_pydict(numbered))
    read = [
        message
        for offset in (0, 2)
        for message in client.read(f"CONSUME topic={topic} partition=0 offset={offset} member=m")
    ]
    assert [(each.payload, each.key, each.producer_id, each.seq_num) for each in read] == [
        ("plain", "", "", 0),
        ("", "", "", 0),
        ("x", "", "till", 4),
    ]


def test_answers_that_nobody_reads_hold_up_nothing(site: CursusSite, client: RawCursus, topic: str) -> None:
    """The Go client reads no answers with acks of 0: what it sends is written all the same."""
    body, sent = framed(batch(topic, records(1), acks="0")), 2_000
    with RawCursus(site.port, receive_bytes=4_096) as silent:
        silent.send(body * sent)
        silent.shutdown()
        known = 0
        while known < sent:
            before = known
            known = site.broker.await_offsets(topic, {0: known, 1: 0}, PATIENCE_SECONDS)[0][1]
            assert known > before
    assert client.ask(f"LIST_OFFSETS topic={topic} partition=0").endswith(f"latest={sent}:leo={sent}:hwm={sent}")

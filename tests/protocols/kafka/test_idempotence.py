"""Batches of idempotent producers: what was written, what was there before, and what follows a batch that failed."""

from __future__ import annotations

from headrace.protocols.kafka.apis.topic_ids import NO_TOPIC, topic_uuid
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built

PRODUCE = 0


def test_requests_under_way_together_are_written_in_order_and_none_behind_one_that_failed(site: Site) -> None:
    site.broker.create_topic("together", 2, message_bytes_max=1000)
    # Producer, partition, first number, value; the third value of producer 8 is too large.
    batches = [
        (8, 0, 0, b"first"),
        (9, 0, 0, b"other"),
        (8, 0, 1, b"second"),
        (8, 0, 1, b"second"),
        (8, 0, 2, b"x" * 2000),
        (8, 0, 3, b"behind"),
        (9, 0, 1, b"other too"),
        (8, 1, 0, b"elsewhere"),
        (8, 0, 2, b"third"),
        (8, 0, 3, b"fourth"),
    ]
    with RawClient(site.port) as client:
        for producer, partition, first, value in batches:
            rows: list[Record] = [(NOW_MS, None, value, [])]
            part = {"index": partition, "records": built(rows, producer=(producer, 0, first))}
            data = [{"name": "together", "partition_data": [part]}]
            client.request(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
        answers = [client.answer(number).responses[0].partition_responses[0] for number in range(len(batches))]
    assert [answer.error_code for answer in answers[:8]] == [0, 0, 0, 0, 10, 45, 0, 0]
    assert answers[2].base_offset == answers[3].base_offset, "the repeated one is the same"
    written = site.broker.fetch("together", 0, 0).column("value").to_pylist()
    assert [value for value in written if not value.startswith(b"other")] == [b"first", b"second", b"third", b"fourth"]
    assert [answer.error_code for answer in answers[8:]] == [0, 0]
    assert site.broker.fetch("together", 1, 0).column("value").to_pylist() == [b"elsewhere"]


def test_topics_are_named_by_id(site: Site) -> None:
    made = site.broker.create_topic("numbered")
    known, other = topic_uuid(made.id), topic_uuid(made.id + 1000)
    with RawClient(site.port) as client:
        rows: list[Record] = [(NOW_MS, None, b"by id", [])]
        part = {"index": 0, "records": built(rows)}
        data = [{"topic_id": each, "partition_data": [part]} for each in (known, other, None)]
        answer = client.call(PRODUCE, 13, acks=-1, timeout=1000, topic_data=data)
        told = [(each.topic_id, each.partition_responses[0].error_code) for each in answer.responses]
        assert told == [(known, 0), (other, 100), (NO_TOPIC, 100)]
        site.broker.delete_topic("numbered")
        data = [{"topic_id": known, "partition_data": [part]}]
        answer = client.call(PRODUCE, 13, acks=-1, timeout=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == 100

"""Probes of reading, and of fetch sessions."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.kafka_tools.comparison.side import ATTRIBUTES_PLACE, DELETE_RECORDS, FETCH, Side, named, one, probe


def looked(answer: Any) -> tuple[Any, ...]:
    """A partition's answer."""
    return named(answer.error_code), answer.high_watermark, answer.log_start_offset, bool(answer.records)


@probe("Fetch: no such topic")
def _(side: Side) -> object:
    return looked(side.fetch("absent"))


@probe("Fetch: no such partition")
def _(side: Side) -> object:
    return [looked(side.fetch(side.topic(), partition=number))[0] for number in (1, -1)]


@probe("Fetch: an id that no topic has")
def _(side: Side) -> object:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
    answer = side.call(FETCH, 13, topics=[{"topic_id": uuid4(), "partitions": [asked]}], replica_id=-1, **fields)
    return named(answer.responses[0].partitions[0].error_code)


@probe("Fetch: at and beyond the end, and below the start", differs="tells the offsets that exist")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 3)
    return [looked(side.fetch(topic, offset)) for offset in (0, 3, 4, 1 << 40, -1, -2)]


@probe("Fetch: below the start after DeleteRecords", differs="tells the offsets that exist")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 5)
    side.call(DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}])
    return [looked(side.fetch(topic, offset)) for offset in (2, 3)]


@probe("Fetch: min_bytes=0 does not wait, nor does an error")
def _(side: Side) -> object:
    topic, begin = side.topic(), side.now_ms
    side.fetch(topic, 0, max_wait=20_000)
    side.fetch(topic, 9, max_wait=20_000, min_bytes=1)
    return side.now_ms - begin < 10_000


@probe("Fetch: one batch at least, however small max_bytes")
def _(side: Side) -> object:
    topic = side.topic()
    side.produce(topic, one(side, bytes(5000)))
    return len(side.fetch(topic, 0, max_bytes=10).records) > 5000


@probe("Fetch: last stable offset, aborted transactions")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 3)
    answers = [side.fetch(topic, isolation_level=level) for level in (0, 1)]
    return [(each.last_stable_offset, len(each.aborted_transactions or [])) for each in answers]


@probe("Fetch: the epoch of the leader is ahead", differs="epochs in requests are not checked")
def _(side: Side) -> object:
    return looked(side.fetch(side.topic(), current_leader_epoch=5))[0]


@probe("Fetch: the epoch of the leader is right")
def _(side: Side) -> object:
    return looked(side.fetch(side.topic(), current_leader_epoch=0))[0]


@probe("Fetch: the codec that a batch has", differs="given out uncompressed")
def _(side: Side) -> object:
    topic = side.topic()
    side.produce(topic, one(side, bytes(1000), codec=1))
    return bytes(side.fetch(topic).records)[ATTRIBUTES_PLACE + 1] & 7


@probe("Fetch: the type of timestamps in a batch")
def _(side: Side) -> object:
    found = []
    for kind in ("CreateTime", "LogAppendTime"):
        topic = side.topic(configs={"message.timestamp.type": kind})
        side.produce(topic, one(side))
        found.append(bytes(side.fetch(topic).records)[ATTRIBUTES_PLACE + 1] >> 3 & 1)
    return found


def fetched(side: Side, *epochs: tuple[int, int]) -> list[tuple[str, bool, int]]:
    """Fetches of a session, each with the id as it was told or 0, plus something, and an epoch."""
    topic, session, told = side.topic(), 0, []
    side.fill(topic, 2)
    asked = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 2, "partition_max_bytes": 1000}]}]
    with side.client() as client:
        for place, (more, epoch) in enumerate(epochs):
            fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": epoch}
            topics = [] if place else asked
            answer = client.call(FETCH, 11, session_id=session + more, topics=topics, **fields)
            session = session or answer.session_id
            told.append((named(answer.error_code), answer.session_id == session != 0, len(answer.responses)))
    return told


@probe("fetch session: begun, and asked for news")
def _(side: Side) -> object:
    return fetched(side, (0, 0), (0, 1), (0, 2))


@probe("fetch session: a wrong epoch")
def _(side: Side) -> object:
    return fetched(side, (0, 0), (0, 2))


@probe("fetch session: an unknown id")
def _(side: Side) -> object:
    return fetched(side, (0, 0), (1, 1))


@probe("fetch session: closed")
def _(side: Side) -> object:
    return fetched(side, (0, 0), (0, -1), (0, 1))

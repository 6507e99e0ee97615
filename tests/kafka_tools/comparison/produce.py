"""Probes of producing, and of idempotent producers."""

from __future__ import annotations

import struct
from uuid import uuid4

from tests.kafka_tools.comparison.side import (
    ATTRIBUTES_PLACE,
    DELETE_RECORDS,
    HOUR_MS,
    NO_CONFIGS,
    PRODUCE,
    Configs,
    Side,
    named,
    one,
    probe,
)
from tests.protocols.kafka.records.by_hand import resealed
from tests.protocols.kafka.records.test_codec import built

INIT_PRODUCER_ID = 22
TIME_PLACE = 27


def patched(data: bytes, place: int, part: bytes) -> bytes:
    """The batch with other bytes at a place, and a checksum that fits."""
    return resealed(data[:place] + part + data[place + len(part) :])


def produced(side: Side, records: bytes | None, configs: Configs = NO_CONFIGS) -> str:
    """The error of producing to a new topic."""
    return named(side.produce(side.topic(configs=configs), records).error_code)


@probe("Produce: no such topic")
def _(side: Side) -> object:
    return named(side.produce("absent", one(side)).error_code)


@probe("Produce: no such partition")
def _(side: Side) -> object:
    return [named(side.produce(side.topic(), one(side), partition=number).error_code) for number in (1, -1)]


@probe("Produce: an id that no topic has")
def _(side: Side) -> object:
    data = [{"topic_id": uuid4(), "partition_data": [{"index": 0, "records": one(side)}]}]
    (answer,) = side.call(PRODUCE, 13, acks=-1, timeout=1000, topic_data=data).responses
    return named(answer.partition_responses[0].error_code)


@probe("Produce: acks=2")
def _(side: Side) -> object:
    return named(side.produce(side.topic(), one(side), acks=2).error_code)


@probe("Produce: offsets and times in the answer")
def _(side: Side) -> object:
    topic = side.topic()
    answers = [side.produce(topic, one(side)) for _ in range(2)]
    return [(each.base_offset, each.log_start_offset, each.log_append_time) for each in answers]


@probe("Produce: LogAppendTime in the answer")
def _(side: Side) -> object:
    answer = side.produce(side.topic(configs={"message.timestamp.type": "LogAppendTime"}), one(side))
    return abs(answer.log_append_time - side.now_ms) < 60_000


@probe("Produce: log_start_offset after DeleteRecords")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 5)
    side.call(DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}])
    answer = side.produce(topic, one(side))
    return answer.base_offset, answer.log_start_offset


@probe("Produce: a checksum that does not fit")
def _(side: Side) -> object:
    return produced(side, one(side)[:-1] + b"x")


@probe("Produce: magic 1")
def _(side: Side) -> object:
    data = one(side)
    return produced(side, data[:16] + b"\x01" + data[17:])


@probe("Produce: two batches for a partition")
def _(side: Side) -> object:
    return produced(side, one(side) * 2)


@probe("Produce: a batch that does not begin with offset 0")
def _(side: Side) -> object:
    return produced(side, struct.pack(">q", 7) + one(side)[8:])


@probe("Produce: cut records")
def _(side: Side) -> object:
    return produced(side, one(side)[:-3])


@probe("Produce: an unknown codec", differs="UNSUPPORTED_COMPRESSION_TYPE")
def _(side: Side) -> object:
    return produced(side, patched(one(side), ATTRIBUTES_PLACE, b"\x00\x06"))


@probe("Produce: a batch of a transaction, without one", differs="A batch of a transaction is INVALID_RECORD")
def _(side: Side) -> object:
    return produced(side, patched(one(side), ATTRIBUTES_PLACE, b"\x00\x10"))


@probe("Produce: a control batch")
def _(side: Side) -> object:
    return produced(side, patched(one(side), ATTRIBUTES_PLACE, b"\x00\x20"))


@probe("Produce: above max.message.bytes")
def _(side: Side) -> object:
    return produced(side, one(side, bytes(5000)), {"max.message.bytes": "1000"})


@probe("Produce: a time two hours ahead", differs="Timestamps ahead of the clock are accepted")
def _(side: Side) -> object:
    return produced(side, built([(side.now_ms + 2 * HOUR_MS, None, b"v", [])]))


@probe("Produce: a time ten years ago")
def _(side: Side) -> object:
    return produced(side, built([(side.now_ms - 87_600 * HOUR_MS, None, b"v", [])]))


@probe("Produce: a negative time")
def _(side: Side) -> object:
    return produced(side, patched(one(side), TIME_PLACE, struct.pack(">qq", -5, -5)))


@probe("Produce: acks=0 is not answered")
def _(side: Side) -> object:
    data = [{"name": side.topic(), "partition_data": [{"index": 0, "records": one(side)}]}]
    with side.client() as client:
        client.request(PRODUCE, 9, acks=0, timeout=1000, topic_data=data)
        client.request(18, 0)
        return named(client.answer(1).error_code)


# Idempotent producers


def producer(side: Side) -> tuple[int, int]:
    """A producer id and its epoch."""
    new = {"transactional_id": None, "transaction_timeout": -1, "producer_id": -1, "producer_epoch": -1}
    # A server that has just started has none to give.
    side.wait(lambda: not side.call(INIT_PRODUCER_ID, 4, **new).error_code)
    given = side.call(INIT_PRODUCER_ID, 4, **new)
    return given.producer_id, given.producer_epoch


def sequence(side: Side, *numbers: int, epochs: tuple[int, ...] = ()) -> list[tuple[str, int]]:
    """What batches of one record with these sequence numbers are answered with."""
    topic, (number, epoch) = side.topic(), producer(side)
    told = []
    for place, each in enumerate(numbers):
        used = epochs[place] if epochs else epoch
        answer = side.produce(topic, one(side, b"v%d" % each, producer=(number, used, each)))
        told.append((named(answer.error_code), answer.base_offset))
    return told


@probe("InitProducerId: idempotent")
def _(side: Side) -> object:
    return producer(side)[1]


@probe("InitProducerId: a transaction with a timeout that is too long")
def _(side: Side) -> object:
    asked = {"transaction_timeout": (1 << 31) - 1, "producer_id": -1, "producer_epoch": -1}
    return named(side.call(INIT_PRODUCER_ID, 4, transactional_id="t", **asked).error_code)


@probe("InitProducerId: an empty transactional id")
def _(side: Side) -> object:
    asked = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    return named(side.call(INIT_PRODUCER_ID, 4, transactional_id="", **asked).error_code)


@probe("idempotence: in order")
def _(side: Side) -> object:
    return sequence(side, 0, 1, 2)


@probe("idempotence: a retry has its first offset")
def _(side: Side) -> object:
    return sequence(side, 0, 1, 2, 1)


@probe("idempotence: a gap")
def _(side: Side) -> object:
    return sequence(side, 0, 2)


@probe("idempotence: an unknown producer begins at 5", differs="must begin with 0")
def _(side: Side) -> object:
    return sequence(side, 5)


@probe("idempotence: a newer epoch begins at 0")
def _(side: Side) -> object:
    return sequence(side, 0, 1, 0, epochs=(0, 0, 1))


@probe("idempotence: an older epoch")
def _(side: Side) -> object:
    return sequence(side, 0, 0, 1, epochs=(0, 1, 0))


@probe("idempotence: a newer epoch that begins at 3")
def _(side: Side) -> object:
    return sequence(side, 0, 3, epochs=(0, 1))

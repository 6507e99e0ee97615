"""Probes of looking up offsets, and of deleting records below one."""

from __future__ import annotations

from tests.kafka_tools.comparison.side import DELETE_RECORDS, HOUR_MS, LIST_OFFSETS, Side, named, probe

OFFSET_FOR_EPOCH = 23


@probe("ListOffsets: earliest, latest, of tiers")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 3)
    return side.offsets(topic, -2, -1, -4, -5)


@probe("ListOffsets: largest timestamp, in order")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 3)
    return side.offsets(topic, -3)


@probe("ListOffsets: largest timestamp, out of order", differs="The message with the largest timestamp")
def _(side: Side) -> object:
    topic = side.topic()
    side.fill(topic, 1, first_ms=side.now_ms)
    side.fill(topic, 2, first_ms=side.now_ms - HOUR_MS)
    return side.offsets(topic, -3)


@probe("ListOffsets: an empty partition")
def _(side: Side) -> object:
    return side.offsets(side.topic(), -2, -1, -3, 0, side.now_ms)


@probe("ListOffsets: by time, at, between, before and after")
def _(side: Side) -> object:
    topic, first = side.topic(), side.now_ms - HOUR_MS
    side.fill(topic, 3, first_ms=first)
    return side.offsets(topic, first - 5, first, first + 1, first + 1000, first + 2001, side.now_ms + HOUR_MS)


@probe("ListOffsets: by time, out of order")
def _(side: Side) -> object:
    topic, first = side.topic(), side.now_ms - HOUR_MS
    side.fill(topic, 2, first_ms=first + 60_000)
    side.fill(topic, 2, first_ms=first)
    return side.offsets(topic, first, first + 1000, first + 60_000, first + 61_000)


@probe("ListOffsets: a negative time that means nothing")
def _(side: Side) -> object:
    return side.offsets(side.topic(), -7, -100)


@probe("ListOffsets: no such topic or partition")
def _(side: Side) -> object:
    return side.offsets("absent", -1), side.offsets(side.topic(), -1, partition=1)


@probe("ListOffsets: a partition twice")
def _(side: Side) -> object:
    asked = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}] * 2
    (answer,) = side.call(LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": side.topic(), "partitions": asked}]).topics
    return [(named(each.error_code), each.offset) for each in answer.partitions]


@probe("ListOffsets: the epoch of the leader is ahead", differs="epochs in requests are not checked")
def _(side: Side) -> object:
    return side.offsets(side.topic(), -1, current_leader_epoch=5)


@probe("OffsetForLeaderEpoch: of this epoch, of a later one", differs="of another cluster are good here")
def _(side: Side) -> object:
    topic, told = side.topic(), []
    side.fill(topic, 3)
    for epoch in (0, 5):
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]
        (answer,) = side.call(OFFSET_FOR_EPOCH, 4, replica_id=-1, topics=[{"topic": topic, "partitions": asked}]).topics
        told += [(named(each.error_code), each.leader_epoch, each.end_offset) for each in answer.partitions]
    return told


@probe("OffsetForLeaderEpoch: no such topic")
def _(side: Side) -> object:
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    (answer,) = side.call(OFFSET_FOR_EPOCH, 4, replica_id=-1, topics=[{"topic": "absent", "partitions": asked}]).topics
    return named(answer.partitions[0].error_code), answer.partitions[0].end_offset


@probe("DeleteRecords: below, at and beyond the end")
def _(side: Side) -> object:
    topic, told = side.topic(), []
    side.fill(topic, 5)
    for offset in (2, 1, 9, -1, -5):
        asked = [{"partition_index": 0, "offset": offset}]
        (answer,) = side.call(DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": asked}], timeout=5000).topics
        told += [(named(each.error_code), each.low_watermark) for each in answer.partitions]
    return told


@probe("DeleteRecords: no such topic")
def _(side: Side) -> object:
    asked = [{"partition_index": 0, "offset": 0}]
    (answer,) = side.call(DELETE_RECORDS, 2, topics=[{"name": "absent", "partitions": asked}], timeout=5000).topics
    return named(answer.partitions[0].error_code)

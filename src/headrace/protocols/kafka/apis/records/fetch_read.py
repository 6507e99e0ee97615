"""Reads what a fetch asks for, once, in a thread: many partitions of a topic in one pass over the log.

The messages of all partitions of a topic are encoded together. What native producers compressed is decompressed only
as far as the answer may grow; the rest is read again by the next fetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.codecs.columns import decode_known
from headrace.core.limits import DECODED_BATCH_BYTES_MAX, FETCH_MESSAGES_MAX
from headrace.core.messages import content_bytes
from headrace.protocols.kafka.apis.call import ANSWER_ELEMENT_BYTES
from headrace.protocols.kafka.apis.records.fetch_topic import FetchPart, FetchTopic
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.records.encode import encode_by_broker_time, encode_many

# What a record takes in addition to key, value and headers, at least: so small messages stay within the limit too.
_RECORD_OVERHEAD_BYTES: Final = 16
# More partitions than this are read in one pass over the log.
_TOGETHER_MIN: Final = 16

# By the place of a partition in its part, what was read of it.
Batches = dict[int, pa.RecordBatch]


@dataclass(slots=True)
class Fetched:
    """What is answered: bytes of records, elements (topics and partitions), and how many partitions have an error.

    `responses` are made once there is room for them.
    """

    parts: list[FetchPart]
    bytes: int = 0
    elements: int = 0
    errors: int = 0
    responses: list[dict[str, Any]] = field(default_factory=list)
    # Nothing could be found, and the time is over: no error, and nothing was read.
    is_nothing: bool = False

    @property
    def size(self) -> int:
        """What the answer takes in memory."""
        return self.bytes + self.elements * ANSWER_ELEMENT_BYTES

    def respond(self) -> Fetched:
        """Make the answer about each topic about which there is anything to say."""
        answered = [(part.topic.ref, part.answers()) for part in self.parts]
        self.responses = [
            {"topic": ref, "topic_id": ref, "partitions": answers} for ref, answers in answered if answers
        ]
        return self


def seen(topics: Iterable[FetchTopic]) -> Fetched:
    """What is known of topics without blocking, without messages."""
    return _counted([topic.part(can_block=False) for topic in topics]).respond()


def read(broker: Broker, topics: Iterable[FetchTopic], bytes_max: int, size_max: float) -> Fetched:
    """Read the partitions that have messages, those first that have waited longest.

    An answer that takes more memory than `size_max`, of which records are at most `bytes_max` or one message, is not
    made yet.
    """
    parts = [topic.part(can_block=True) for topic in topics]
    behind = [(part, places) for part in parts if (places := part.behind())]
    if len(behind) > 1:
        behind.sort(key=lambda each: each[0].turn_of(each[1][0]))
    left = bytes_max
    for part, places in behind:
        if left <= 0:
            break
        batches = _batches(broker, part, places, left)
        part.records = dict(zip(batches, _encoded(part.topic, list(batches.values())), strict=True))
        left -= part.bytes
    found = _counted(parts)
    return found.respond() if found.size <= size_max else found


def _counted(parts: list[FetchPart]) -> Fetched:
    found = Fetched(parts)
    for part in parts:
        found.bytes += part.bytes
        found.elements += 1 + part.elements
        found.errors += part.errors
    return found


def _batches(broker: Broker, part: FetchPart, places: list[int], bytes_max: int) -> Batches:
    # More could not give a message each.
    places = places[: max(_TOGETHER_MIN, bytes_max // _RECORD_OVERHEAD_BYTES)]
    batches = _read_together(part, places, bytes_max) if len(places) > _TOGETHER_MIN else {}
    return _plain(batches or _read_each(broker, part, places, bytes_max), bytes_max)


def _read_together(part: FetchPart, places: list[int], bytes_max: int) -> Batches:
    """Many partitions in one pass, each its share of what the answer may hold."""
    reader = part.topic.reader
    assert reader is not None
    bytes_max = max(1, min(bytes_max, int(part.bytes_max[places].min()) * len(places)))
    messages_max = min(FETCH_MESSAGES_MAX, max(1, bytes_max // _RECORD_OVERHEAD_BYTES))
    numbers, offsets = part.numbers[places].tolist(), reader.offsets()
    positions = {
        number: offsets.readable(number, offset)
        for number, offset in zip(numbers, part.offsets[places].tolist(), strict=True)
    }
    batches = reader.read_shares(positions, messages_max, bytes_max)
    if not batches:
        return {}
    column = batches[0].schema.get_field_index("partition")
    first = pa.concat_arrays([batch.column(column).slice(0, 1) for batch in batches])
    place_of = dict(zip(numbers, places, strict=True))
    return {place_of[number]: batch for number, batch in zip(first.to_numpy().tolist(), batches, strict=True)}


def _read_each(broker: Broker, part: FetchPart, places: list[int], bytes_max: int) -> Batches:
    """Partitions one after another; those that cannot be read say why."""
    reader = part.topic.reader
    assert reader is not None
    batches: Batches = {}
    offsets = reader.offsets()
    left = bytes_max
    for place in places:
        # The first message is given however large it is.
        if left <= 0 and batches:
            break
        number, offset = part.numbers.item(place), part.offsets.item(place)
        limit = max(1, min(part.bytes_max.item(place), left))
        messages_max = min(FETCH_MESSAGES_MAX, max(1, limit // _RECORD_OVERHEAD_BYTES))
        try:
            # Offsets that were lost are passed over: clients accept that the next one is higher.
            batch = broker.fetch(part.topic.name, number, offsets.readable(number, offset), messages_max, limit)
        except Exception as error:
            part.fail(place, code_of(error))
            continue
        if batch.num_rows:
            batches[place] = batch
            left -= content_bytes(batch) + batch.num_rows * _RECORD_OVERHEAD_BYTES
    return batches


def _plain(batches: Batches, bytes_max: int) -> Batches:
    """Messages with values that native producers compressed as they were before; what cannot be read stays.

    All of them together grow to the limit, or to one message.
    """
    plain: Batches = {}
    left = min(bytes_max, DECODED_BATCH_BYTES_MAX)
    for place, batch in batches.items():
        codecs = batch.column("codec")
        if codecs.null_count == len(codecs):
            plain[place] = batch
        elif left > 0:
            decoded = decode_known(batch.column("value"), codecs, column_bytes_max=left)
            batch = batch.slice(0, decoded.rows)
            column = batch.schema.get_field_index("value")
            plain[place] = batch.set_column(column, batch.schema.field("value"), decoded.values)
            left -= decoded.values.nbytes
    return plain


def _encoded(topic: FetchTopic, batches: list[pa.RecordBatch]) -> list[bytes]:
    if not batches:
        return []
    is_created = topic.reader is None or topic.reader.settings.timestamp_type == "created"
    return encode_many(batches) if is_created else encode_by_broker_time(batches)

"""A record batch as Arrow columns: key, value, attributes, created_at.

    length, attributes, timestamp delta, offset delta, key length, key, value length, value, headers …   each record

Where a record begins follows from the length of the one before, so the beginnings are found by the only loop over
records, which does nothing else. Then every field of all records is read at once. Keys and values are not copied one
by one: an Arrow array over the records as they are, whose rows are the keys and values and what lies between them,
has its rows of one kind taken. Headers are read round by round: the first of every record that has one, the second, …
A handful of records is read by `few`, which leaves everything unusual to the rules here.

Every length is checked against the record it is in, so that what comes out never holds bytes of another record. The
offsets of records must count from 0 without gaps. Stateless and thread-safe; bad bytes raise `BadRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from headrace.core.limits import ATTRIBUTES_PER_MESSAGE_MAX, BATCH_ROWS_MAX, CREATED_AT_US_MAX, CREATED_AT_US_MIN
from headrace.core.lists import numbers
from headrace.core.messages import ATTRIBUTES, TIMESTAMP
from headrace.protocols.kafka.records.compression import decompress
from headrace.protocols.kafka.records.few import FEW_RECORDS, read_few
from headrace.protocols.kafka.records.header import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BadRecords,
    BatchHeader,
    TooManyBytes,
    read_header,
)
from headrace.protocols.kafka.records.varints import PADDING, BadVarint, Bytes, Int64s, read_varints

P = ParamSpec("P")
T = TypeVar("T")

_MILLISECOND_US = 1000
_TIME_MS_MIN, _TIME_MS_MAX = CREATED_AT_US_MIN // _MILLISECOND_US + 1, CREATED_AT_US_MAX // _MILLISECOND_US
# The smallest record: six numbers of one byte, and its length.
_RECORD_BYTES_MIN = 7
_LENGTH_BITS_MAX = 28


class BadTimestamp(BadRecords):
    """A time that no reader could show."""

    error = "invalid_timestamp"


# Nobody changes these two. One is created for every batch, and `frozen` would take most of that time.


@dataclass(slots=True)
class RecordBatch:
    """A decoded batch: the rows from `first` on of what was decoded with it, in columns of messages to publish."""

    header: BatchHeader
    together: pa.RecordBatch
    first: int = 0

    @property
    def columns(self) -> pa.RecordBatch:
        """The rows of this batch."""
        return self.together.slice(self.first, self.header.count)


@dataclass(slots=True)
class _Checked:
    """A batch whose head is right, with its records, decompressed and not looked at."""

    header: BatchHeader
    records: memoryview


def decode(data: memoryview, bytes_max: int) -> RecordBatch:
    """The one record batch that these bytes are; its records take at most `bytes_max` when decompressed."""
    checked = _checked(data, bytes_max)
    return RecordBatch(checked.header, _columns([checked]))


def decode_many(batches: Sequence[memoryview], bytes_max: int) -> list[RecordBatch | BadRecords]:
    """Several batches at once, which costs little more than one of their records together.

    Fewer than were given if they decompress to more than `bytes_max` together: the rest is for another call. If
    anything is wrong with any of them, each is decoded by itself.
    """
    checked: list[_Checked | BadRecords] = []
    left = bytes_max
    for data in batches:
        each = _unless_bad(_checked, data, left)
        if isinstance(each, TooManyBytes) and left < bytes_max:
            break
        checked.append(each)
        if isinstance(each, _Checked) and each.header.codec:
            left -= len(each.records)
    good = [each for each in checked if isinstance(each, _Checked)]
    together = None
    if len(good) > 1 and sum(len(each.records) for each in good) <= bytes_max:
        found = _unless_bad(_columns, good)
        together = None if isinstance(found, BadRecords) else found
    decoded: list[RecordBatch | BadRecords] = []
    first = 0
    for each in checked:
        if isinstance(each, BadRecords):
            decoded.append(each)
            continue
        if together is not None:
            decoded.append(RecordBatch(each.header, together, first))
            first += each.header.count
            continue
        columns = _unless_bad(_columns, [each])
        decoded.append(columns if isinstance(columns, BadRecords) else RecordBatch(each.header, columns))
    return decoded


def _unless_bad(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | BadRecords:
    try:
        return work(*args, **kwargs)
    except BadRecords as error:
        # The frames of its traceback hold what was decompressed.
        return error.with_traceback(None)


def _checked(data: memoryview, bytes_max: int) -> _Checked:
    header = read_header(data)
    if header.is_transactional:
        raise BadRecords("transactions are not supported")
    if not 1 <= header.count <= BATCH_ROWS_MAX:
        raise BadRecords(f"the batch says it has {header.count} records: 1 to {BATCH_ROWS_MAX} are accepted")
    if header.last_offset_delta != header.count - 1:
        raise BadRecords(f"the last offset delta is {header.last_offset_delta} with {header.count} records")
    records = decompress(header.codec, data[HEADER_BYTES:], bytes_max)
    if header.count * _RECORD_BYTES_MIN > len(records):
        raise BadRecords(f"{header.count} records cannot be in {len(records)} bytes")
    return _Checked(header, records)


def _columns(batches: Sequence[_Checked]) -> pa.RecordBatch:
    """The records of some batches, one after another."""
    if sum(each.header.count for each in batches) <= FEW_RECORDS:
        few = read_few((each.header, each.records) for each in batches)
        if few is not None:
            return few
    return _whole_columns(batches)


def _whole_columns(batches: Sequence[_Checked]) -> pa.RecordBatch:
    try:
        return _read_columns(batches)
    except BadVarint as error:
        raise BadRecords(str(error)) from None


def _read_columns(batches: Sequence[_Checked]) -> pa.RecordBatch:
    padded = b"".join([*(each.records for each in batches), bytes(PADDING)])
    data = np.frombuffer(padded, np.uint8)
    starts, ends = _bounds(batches, padded, data)
    # One byte of attributes, which has no meaning.
    time_delta, position = read_varints(data, _inside(starts + 1, ends))
    offset_delta, position = read_varints(data, _inside(position, ends))
    key_length, key_start = read_varints(data, _inside(position, ends))
    key_end = _end(key_start, key_length, ends)
    value_length, value_start = read_varints(data, _inside(key_end, ends))
    value_end = _end(value_start, value_length, ends)
    header_count, position = read_varints(data, _inside(value_end, ends))
    if not np.array_equal(offset_delta, np.concatenate([np.arange(each.header.count) for each in batches])):
        raise BadRecords("the offset deltas of the records do not count from 0")
    fields = [(value_start, value_end, value_length)]
    if (key_length >= 0).any():
        fields.insert(0, (key_start, key_end, key_length))
    *keys, values = _taken(data, fields)
    named = {"value": values}
    if keys:
        named["key"] = keys[0]
    if header_count.any():
        named["attributes"], position = _headers(data, header_count, position, ends)
    if not np.array_equal(position, ends):
        raise BadRecords("a record does not end where its length says")
    created_at = _times([each.header for each in batches], time_delta)
    if created_at is not None:
        named["created_at"] = created_at
    return pa.RecordBatch.from_pydict(named)


def _starts(records: bytes, count: int) -> list[int]:
    """Where each record begins, and where the last one ends: the only loop over records."""
    position, starts = 0, [0] * (count + 1)
    try:
        for row in range(1, count + 1):
            low = records[position]
            if low < 0x80:
                position += 1 + (low >> 1)
            else:
                high = records[position + 1]
                if high < 0x80:
                    # Two bytes, and the length that they hold: its low six bits, without the mark, and its high seven.
                    position += 2 + (low >> 1) - 64 + (high << 6)
                else:
                    position = _after(records, position)
            starts[row] = position
    except IndexError:
        raise BadRecords("the lengths of the records lead beyond the bytes of the batch") from None
    return starts


def _after(records: bytes, position: int) -> int:
    """Where a record ends whose length has three bytes or more."""
    length = shift = 0
    while True:
        byte = records[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + (length >> 1)
        shift += 7
        if shift > _LENGTH_BITS_MAX:
            raise BadVarint("the length of a record is longer than five bytes")


def _bounds(batches: Sequence[_Checked], padded: bytes, data: Bytes) -> tuple[Int64s, Int64s]:
    """Where each record of batches that follow one another begins, after its length, and where it ends.

    Together the records of a batch must be all of its bytes. So a record that leads into another batch is found out,
    wherever the lengths that were read there lead.
    """
    counts = np.array([each.header.count for each in batches])
    starts = np.array(_starts(padded, int(counts.sum())), np.int64)
    batch_ends = np.cumsum([len(each.records) for each in batches])
    found = starts[np.cumsum(counts)]
    if not np.array_equal(found, batch_ends):
        batch = int(np.argmax(found != batch_ends))
        raise BadRecords(f"the records take {found[batch]} bytes and there are {batch_ends[batch]}")
    lengths, after_length = read_varints(data, starts[:-1])
    # The loop takes a negative length for a positive one.
    if lengths.min() < _RECORD_BYTES_MIN - 1:
        raise BadRecords(f"record {int(np.argmin(lengths))} has a length of {int(lengths.min())} bytes")
    return after_length, starts[1:]


def _inside(positions: Int64s, ends: Int64s) -> Int64s:
    """The same positions, if there is at least a byte of each record left there."""
    if (positions >= ends).any():
        raise BadRecords(f"record {int(np.argmax(positions >= ends))} is shorter than its fields")
    return positions


def _end(start: Int64s, length: Int64s, ends: Int64s) -> Int64s:
    """Where bytes of some length end; the length of null is -1."""
    # Compared before it is added: a sum could overflow.
    wrong = (length < -1) | (length > ends - start)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadRecords(f"record {row} has a key, value or header of {int(length[row])} bytes, which it cannot hold")
    end: Int64s = start + np.maximum(length, 0)
    return end


def _taken(data: Bytes, fields: list[tuple[Int64s, Int64s, Int64s]]) -> list[pa.Array]:
    """Arrow columns of the bytes that each field has in each row; fields follow one another in the data.

    Between two fields there is a gap, which is a row of the array too: so its offsets grow without a copy.
    """
    rows, count = len(fields[0][0]), len(fields)
    offsets = np.empty((rows, 2 * count), np.int32)
    for place, (start, end, _) in enumerate(fields):
        offsets[:, 2 * place] = start
        offsets[:, 2 * place + 1] = end
    # The first offset is 0: row 0 is the gap before the first field.
    bounds = np.concatenate([np.zeros(1, np.int32), offsets.reshape(-1)])
    everything = pa.Array.from_buffers(pa.binary(), 2 * count * rows, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    columns = []
    for place, (_, _, length) in enumerate(fields):
        picked = np.arange(2 * place + 1, 2 * count * rows, 2 * count)
        absent = length < 0
        columns.append(everything.take(pa.array(picked, mask=absent) if absent.any() else numbers(pa.int64(), picked)))
    return columns


def _headers(data: Bytes, counts: Int64s, position: Int64s, ends: Int64s) -> tuple[pa.Array, Int64s]:
    """The headers of all records as a map column, and where each record continues."""
    if counts.min() < 0 or counts.max() > ATTRIBUTES_PER_MESSAGE_MAX:
        row = int(np.argmax((counts < 0) | (counts > ATTRIBUTES_PER_MESSAGE_MAX)))
        raise BadRecords(f"record {row} has {counts[row]} headers: at most {ATTRIBUTES_PER_MESSAGE_MAX} are accepted")
    position = position.copy()
    bounds = np.concatenate([[0], np.cumsum(counts)])
    name_start, name_end, start, end, lengths = (np.zeros(int(bounds[-1]), np.int64) for _ in range(5))
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        places, stop = bounds[rows] + number, ends[rows]
        length, first = read_varints(data, _inside(position[rows], stop))
        if (length < 0).any():
            raise BadRecords(f"record {int(rows[np.argmax(length < 0)])} has a header without a name")
        name_start[places], name_end[places] = first, _end(first, length, stop)
        length, first = read_varints(data, _inside(name_end[places], stop))
        start[places], end[places], lengths[places] = first, _end(first, length, stop), length
        position[rows] = end[places]
    names, values = _taken(data, [(name_start, name_end, name_start), (start, end, lengths)])
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise BadRecords("the name of a header is not UTF-8") from None
    nothing = pa.array(counts == 0) if (counts == 0).any() else None
    offsets = pa.array(bounds, pa.int32())
    return pa.MapArray.from_arrays(offsets, names, values, type=ATTRIBUTES, mask=nothing), position


def _times(headers: Sequence[BatchHeader], delta: Int64s) -> pa.Array | None:
    """When the records were created; null where a batch has no times, none if none has."""
    counts = [header.count for header in headers]
    given = [header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms for header in headers]
    base = np.repeat(np.array(given, np.int64), counts)
    if any(header.is_log_append_time for header in headers):
        delta = np.where(np.repeat([header.is_log_append_time for header in headers], counts), 0, delta)
    # As numbers of Python, which do not overflow.
    earliest, latest = min(given) + int(delta.min()), max(given) + int(delta.max())
    if NO_TIMESTAMP not in given and earliest >= _TIME_MS_MIN and latest <= _TIME_MS_MAX:
        return numbers(TIMESTAMP, (base + delta) * _MILLISECOND_US)
    absent = (base == NO_TIMESTAMP) & (delta == 0)
    if absent.all():
        return None
    # Compared before it is added: a sum could overflow.
    wrong = ~absent & ((delta < _TIME_MS_MIN - base) | (delta > _TIME_MS_MAX - base) | (np.abs(base) > _TIME_MS_MAX))
    if wrong.any():
        row = int(np.argmax(wrong))
        time_ms = int(base[row]) + int(delta[row])
        raise BadTimestamp(f"record {row} has the timestamp {time_ms} ms since 1970: outside the years 1 to 9999")
    times = pa.array((base + delta) * _MILLISECOND_US, pa.int64(), mask=absent if absent.any() else None)
    return times.cast(TIMESTAMP)

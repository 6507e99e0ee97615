"""Batches of messages: the schemas for publishing and reading, and validation.

`accept` turns what a publisher sent into the canonical form that planning and storage rely on: known columns only,
in one order, exact types, every rule checked. It checks whole columns; it looks for the row only once a rule is
broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import CodecNotAllowed, InvalidInput, InvalidMessage, MessageTooLarge
from headrace.core.hashes.columns import Int64s, byte_rows, filled
from headrace.core.limits import (
    ATTRIBUTES_PER_MESSAGE_MAX,
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    CREATED_AT_US_MAX,
    CREATED_AT_US_MIN,
    ID_CHARACTERS_MAX,
)
from headrace.core.lists import numbers
from headrace.core.topics.settings import CODECS, TopicSettings
from headrace.core.views import VIEW_TYPES, bytes_in, without_views_of_nulls

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
# Names may repeat, and the value of an attribute may be null.
ATTRIBUTES: Final = pa.map_(pa.string(), pa.binary())

# The columns that are stored, in the order of their bits in a frame's column mask.
STORED_SCHEMA: Final = pa.schema(
    [
        # Null is not empty: it says that what the key names was deleted (a tombstone).
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("codec", pa.string()),
        pa.field("created_at", TIMESTAMP),
        pa.field("producer_id", pa.string()),
        pa.field("message_group_id", pa.string()),
        pa.field("seqno", pa.int64()),
    ]
)
PUBLISH_SCHEMA: Final = STORED_SCHEMA.append(pa.field("partition", pa.int32()))
READ_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        *STORED_SCHEMA,
    ]
)

# The accepted input types for each canonical type; dictionaries of these too.
NO_MESSAGES: Final = pa.RecordBatch.from_arrays([pa.nulls(0, pa.binary())], schema=pa.schema([STORED_SCHEMA.field(0)]))

_TEXT_TYPES: Final = frozenset({pa.string(), pa.large_string(), pa.string_view()})
_BYTES_TYPES: Final = frozenset({pa.binary(), pa.large_binary(), pa.binary_view(), *_TEXT_TYPES})
_ACCEPTED: Final = {
    pa.binary(): _BYTES_TYPES.__contains__,
    pa.string(): _TEXT_TYPES.__contains__,
    pa.int64(): pa.types.is_integer,
    pa.int32(): pa.types.is_integer,
    # Without a zone the time is ambiguous.
    TIMESTAMP: lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    ATTRIBUTES: pa.types.is_map,
}


def accept(batch: pa.RecordBatch, settings: TopicSettings, partitions: int) -> pa.RecordBatch:
    """The batch in canonical form, without all-null columns; raises an error that names field, value and rule."""
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidInput("batch", type(batch).__name__, "it must be a pyarrow RecordBatch")
    _check_layout(batch)
    return _accepted(batch, settings, partitions)


def _accepted(batch: pa.RecordBatch, settings: TopicSettings, partitions: int) -> pa.RecordBatch:
    """`accept` of a batch whose layout was checked."""
    columns = _canonical_columns(batch)
    accepted = pa.RecordBatch.from_arrays(list(columns.values()), schema=_schema_of(tuple(columns)))
    # If all rows together are within the limit of one, none of them needs to be looked at. The buffers as they are
    # bound what slices of them hold, and cost far less to ask for.
    bytes_max = settings.message_bytes_max
    if accepted.get_total_buffer_size() > bytes_max and accepted.nbytes > bytes_max:
        sizes = message_sizes(columns["value"], columns.get("key"), columns.get("attributes"))
        _check_sizes(sizes, bytes_max)
    # Without a codec a message counts as raw, which a topic may disallow too.
    if settings.codecs != CODECS or "codec" in columns:
        _check_codecs(columns.get("codec", pa.nulls(batch.num_rows, pa.string())), settings.codecs)
    for name in ("producer_id", "message_group_id"):
        if name in columns:
            _check_id_lengths(name, columns[name])
    if "created_at" in columns:
        _check_created_at(columns["created_at"])
    _check_sequence(columns)
    if "partition" in columns:
        _check_partitions(columns["partition"], partitions)
    return accepted


@cache
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([PUBLISH_SCHEMA.field(name) for name in names])


def accept_all(
    batches: Sequence[pa.RecordBatch], settings: TopicSettings, partitions: int
) -> tuple[list[pa.RecordBatch], list[Exception | None]]:
    """`accept` for the batches of several publishers: one check for all, since most of the time all are good.

    If they do not look alike, or anything is wrong with one, each is checked by itself. What comes back is one batch
    with the rows of all, or one for each that is good; and for each its error or none, unless all are good. Also what
    nobody expected, a lack of memory among it, is the error of the one whose batch met it.
    """
    first = batches[0]
    if len(batches) > 1 and all(batch.schema.equals(first.schema) for batch in batches[1:]):
        try:
            # Concatenating trusts offsets and indices, so they are checked before.
            for batch in batches:
                _check_layout(batch)
            return [_accepted(pa.concat_batches(batches), settings, partitions)], []
        except Exception:
            # Checking each batch separately shows which one is invalid.
            pass
    accepted: list[pa.RecordBatch] = []
    errors: list[Exception | None] = []
    for batch in batches:
        try:
            accepted.append(accept(batch, settings, partitions))
            errors.append(None)
        except Exception as error:
            # The traceback would keep this list, and so all of the rows; of a refusal nobody needs it.
            errors.append(error.with_traceback(None) if isinstance(error, InvalidInput) else error)
    return accepted, errors if len(accepted) < len(batches) else []


def message_sizes(value: pa.Array, key: pa.Array | None, attributes: pa.Array | None) -> Int64s:
    """The size of each message: value, key, attribute names and attribute values."""
    sizes = _lengths(value)
    if key is not None:
        sizes = sizes + _lengths(key)
    return sizes if attributes is None else sizes + _map_sizes(attributes)


def content_bytes(batch: pa.RecordBatch) -> int:
    """The total size of the messages of a stored or read batch, without looking at each one."""
    total = 0
    for name in ("value", "key", "attributes"):
        place = batch.schema.get_field_index(name)
        column = batch.column(place) if place >= 0 else None
        if column is not None and column.null_count < len(column):
            total += column.total_values_length if name != "attributes" else int(_map_sizes(column).sum())
    return total


def pad(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the schema, those it lacks as nulls."""
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Canonical batches one after another, with every column that any of them has."""
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches[1:]):
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    present = {name for batch in batches for name in batch.schema.names}
    schema = pa.schema([field for field in PUBLISH_SCHEMA if field.name in present])
    return pa.concat_batches([pad(batch, schema) for batch in batches])


def with_present_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Canonical rows that an older version stored together with their schema, in the types of today."""
    schema = _schema_of(tuple(batch.schema.names))
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def read_batch(stored: pa.RecordBatch, partition: int, offset: int, times_us: Int64s) -> pa.RecordBatch:
    """What a reader gets: stored rows of one partition from `offset` on, with the columns that are not stored."""
    rows = stored.num_rows
    partitions, offsets = np.full(rows, partition, dtype=np.int32), np.arange(offset, offset + rows, dtype=np.int64)
    return read_rows(stored, partitions, offsets, times_us)


def read_rows(
    stored: pa.RecordBatch, partitions: npt.NDArray[np.int32], offsets: Int64s, times_us: Int64s
) -> pa.RecordBatch:
    """The same of rows of any partitions."""
    rows = stored.num_rows
    known = dict(zip(stored.schema.names, stored.columns, strict=True))
    if "created_at" in known:
        known["created_at"] = _shown_times(known["created_at"])
    derived = [
        numbers(pa.int32(), np.ascontiguousarray(partitions)),
        numbers(pa.int64(), np.ascontiguousarray(offsets)),
        numbers(TIMESTAMP, np.ascontiguousarray(times_us)),
    ]
    given = [known[name] if name in known else pa.nulls(rows, kind) for name, kind in _STORED_TYPES]
    return pa.RecordBatch.from_arrays(derived + given, schema=READ_SCHEMA)


def _shown_times(column: pa.Array) -> pa.Array:
    """Times that readers can represent; others, which older versions accepted, become null."""
    times = column.view(pa.int64())
    if _is_within(times, CREATED_AT_US_MIN, CREATED_AT_US_MAX):
        return column
    return pc.if_else(_within(times), times, pa.scalar(None, pa.int64())).cast(TIMESTAMP)


_STORED_TYPES: Final = [(field.name, field.type) for field in STORED_SCHEMA]


def _check_layout(batch: pa.RecordBatch) -> None:
    """Refuse offsets, indices and text that Arrow's readers do not check: what comes after relies on them."""
    if batch.num_rows > BATCH_ROWS_MAX:
        raise InvalidInput("batch", f"{batch.num_rows} rows", f"at most {BATCH_ROWS_MAX} rows in a batch")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput("batch", "not valid Arrow", str(error)) from None


def check_columns(schema: pa.Schema) -> list[str]:
    """The names of the columns; raises unless each is known, given once, and of a type that is accepted."""
    names = _known_names(schema)
    for name in names:
        _check_type(schema.field(name).type, name, _PUBLISH_TYPES[name])
    return names


def _known_names(schema: pa.Schema) -> list[str]:
    names = _names_of(schema)
    for name in names:
        if name not in _PUBLISH_TYPES:
            raise InvalidInput("column", repr(name)[:100], f"known columns are {', '.join(PUBLISH_SCHEMA.names)}")
        if names.count(name) > 1:
            raise InvalidInput("column", repr(name), "it is given more than once")
    if "value" not in names:
        raise InvalidInput("column", "'value' missing", "every batch needs a value column")
    return names


def _canonical_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    names = _known_names(batch.schema)
    columns = {}
    for name, kind in _PUBLISH_TYPES.items():
        if name in names:
            column = _canonical_column(batch.column(name), name, kind)
            if name == "value" or column.null_count < len(column):
                columns[name] = column
    return columns


def _names_of(schema: pa.Schema) -> list[str]:
    try:
        return schema.names  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        raise InvalidInput("column", repr(error.object)[:100], "the name of a column must be UTF-8") from None


_PUBLISH_TYPES: Final = {field.name: field.type for field in PUBLISH_SCHEMA}


def _check_type(given: pa.DataType, name: str, kind: pa.DataType) -> None:
    encoded = pa.types.is_dictionary(given) and not pa.types.is_map(kind)
    plain = given.value_type if encoded else given
    if not (pa.types.is_null(plain) or _ACCEPTED[kind](plain)):
        raise InvalidInput(name, f"of type {given}", f"it must be of type {kind}")


def _canonical_column(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    given = column.type
    if given.equals(kind) and not pa.types.is_map(given):
        return column
    _check_type(given, name, kind)
    if pa.types.is_dictionary(given):
        return _canonical_column(_decoded(column, name, kind), name, kind)
    if pa.types.is_null(given):
        return pa.nulls(len(column), kind)
    if pa.types.is_map(given):
        return _canonical_map(column, name, kind)
    return _cast(column, name, kind)


def _decoded(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """A dictionary-encoded column as a plain one."""
    values = column.dictionary
    if values.type in _BYTES_TYPES:
        # Many rows may refer to one long value, so the size is added up before anything is decoded.
        values = _canonical_column(values, name, kind)
        _check_column_bytes(name, pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)
    return values.take(column.indices)


def _cast(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    if column.type in _BYTES_TYPES:
        # Arrow casts views of more than 2 GiB to wrong offsets, without an error.
        _check_column_bytes(name, bytes_in(column))
    if column.type in VIEW_TYPES and column.null_count:
        column = without_views_of_nulls(column)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        row = _first_misfit(column, kind)
        value = str(column.slice(row, 1).to_numpy(zero_copy_only=False)[0])
        raise InvalidMessage(name, value, f"it does not fit type {kind}", row) from None


def _check_column_bytes(name: str, count: int) -> None:
    if count > BATCH_BYTES_MAX:
        raise InvalidInput(name, f"{count} bytes", f"at most {BATCH_BYTES_MAX} bytes in a batch")


def _first_misfit(column: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by binary search: Arrow only says that there is one."""
    first, end = 0, len(column)
    while end - first > 1:
        middle = (first + end) // 2
        try:
            column.slice(first, middle - first).cast(kind)
            first = middle
        except pa.ArrowInvalid:
            end = middle
    return first


def _canonical_map(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """The map rebuilt from its entries: exact types, nothing outside the slice, nothing behind a null row."""
    counts = np.diff(_map_bounds(column))
    keys = _canonical_column(_map_keys(column), name, kind.key_type)
    items = _canonical_column(_map_items(column), name, kind.item_type)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        entries = pa.array(np.repeat(valid, counts))
        keys, items, counts = keys.filter(entries), items.filter(entries), np.where(valid, counts, 0)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    _check_attribute_counts(counts)
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), keys, items, type=kind, mask=mask)


def has_nulls(batch: pa.RecordBatch) -> bool:
    """Whether any value of these canonical rows is null, or the value of an attribute of theirs."""
    if batch.column("value").null_count:
        return True
    place = batch.schema.get_field_index("attributes")
    return place >= 0 and bool(_map_items(batch.column(place)).null_count)


def _check_attribute_counts(counts: Int64s) -> None:
    if len(counts) and counts.max() > ATTRIBUTES_PER_MESSAGE_MAX:
        row = int(np.argmax(counts > ATTRIBUTES_PER_MESSAGE_MAX))
        rule = f"a message may have at most {ATTRIBUTES_PER_MESSAGE_MAX}"
        raise InvalidMessage("attributes", f"{counts[row]} attributes", rule, row)


def _check_sizes(sizes: Int64s, bytes_max: int) -> None:
    if len(sizes) and sizes.max() > bytes_max:
        row = int(np.argmax(sizes > bytes_max))
        raise MessageTooLarge("message", f"{sizes[row]} bytes", f"this topic allows at most {bytes_max} bytes", row)
    if sizes.sum() > BATCH_BYTES_MAX:
        raise InvalidInput("batch", f"{sizes.sum()} bytes", f"at most {BATCH_BYTES_MAX} bytes in a batch")


def _check_codecs(codecs: pa.Array, allowed: Sequence[str]) -> None:
    if codecs.null_count and "raw" not in allowed:
        raise _not_allowed(codecs.is_null(), "not given, which means raw", allowed)
    for codec in pc.unique(codecs.drop_null()).to_pylist():
        if codec not in allowed:
            raise _not_allowed(pc.fill_null(pc.equal(codecs, codec), False), repr(codec)[:100], allowed)


def _not_allowed(wrong: pa.Array, value: str, allowed: Sequence[str]) -> CodecNotAllowed:
    row = _first(wrong)
    return CodecNotAllowed("codec", value, f"this topic allows {', '.join(allowed)}", row)


def _check_id_lengths(name: str, ids: pa.Array) -> None:
    # A text of many characters has many bytes, so the cheap test is first.
    if _lengths(ids).max() > ID_CHARACTERS_MAX:
        lengths = pc.utf8_length(ids)
        wrong = pc.fill_null(pc.greater(lengths, ID_CHARACTERS_MAX), False)
        if pc.any(wrong).as_py():
            value = f"{lengths[_first(wrong)]} characters long"
            raise _invalid(wrong, name, value, f"at most {ID_CHARACTERS_MAX} characters")


def _check_created_at(column: pa.Array) -> None:
    times = column.view(pa.int64())
    if not _is_within(times, CREATED_AT_US_MIN, CREATED_AT_US_MAX):
        wrong = pc.invert(pc.fill_null(_within(times), True))
        value = f"{times[_first(wrong)]} microseconds since 1970"
        raise _invalid(wrong, "created_at", value, "it must be in the years 1 to 9999, except the first and last day")


def _is_within(numbers: pa.Array, least: int, most: int) -> bool:
    """Whether all numbers are, between limits on both sides of 0; nulls are."""
    values = filled(numbers, 0)
    return not len(values) or bool(values.min() >= least and values.max() <= most)


def _within(times: pa.Array) -> pa.Array:
    """Which times every reader can show."""
    after = pc.greater_equal(times, pa.scalar(CREATED_AT_US_MIN, pa.int64()))
    return pc.and_(after, pc.less_equal(times, pa.scalar(CREATED_AT_US_MAX, pa.int64())))


def _check_sequence(columns: dict[str, pa.Array]) -> None:
    seqno, group, producer = columns.get("seqno"), columns.get("message_group_id"), columns.get("producer_id")
    if seqno is not None:
        values = filled(seqno, 0)
        if values.min() < 0:
            row = int(np.argmax(values < 0))
            raise InvalidMessage("seqno", str(values[row]), "it must be 0 or more", row)
    if producer is not None and _lengths(producer).min() > 0:
        return
    if seqno is not None:
        _check_producer("seqno", seqno, seqno.is_valid(), producer)
    if group is not None:
        _check_producer("message_group_id", group, _is_given(group), producer)


def _check_producer(name: str, column: pa.Array, given: pa.Array, producer: pa.Array | None) -> None:
    orphans = given if producer is None else pc.and_not(given, _is_given(producer))
    if pc.any(orphans).as_py():
        value = repr(column[_first(orphans)].as_py())[:100]
        raise _invalid(orphans, name, value, "it needs a producer_id in the same row")


def _is_given(ids: pa.Array) -> pa.Array:
    """Which rows have an id; an empty one is none."""
    return pc.fill_null(pc.not_equal(ids, _empty()), False)


@cache
def _empty() -> pa.Scalar:
    """Created once, on first use, and typed: Arrow would import pandas to create a scalar."""
    return pa.scalar("", pa.string())


def _check_partitions(column: pa.Array, partitions: int) -> None:
    values = filled(column, 0)
    if values.min() < 0 or values.max() >= partitions:
        row = int(np.argmax((values < 0) | (values >= partitions)))
        raise InvalidMessage("partition", str(values[row]), f"this topic has partitions 0 to {partitions - 1}", row)


def _invalid(wrong: pa.Array, field: str, value: str, rule: str) -> InvalidMessage:
    return InvalidMessage(field, value, rule, _first(wrong))


def _first(mask: pa.Array) -> int:
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)))


def _lengths(column: pa.Array) -> Int64s:
    return byte_rows(column)[2]


def _map_sizes(column: pa.Array) -> Int64s:
    """The bytes of each row's names and values."""
    ends = np.concatenate([[0], np.cumsum(_lengths(_map_keys(column)) + _lengths(_map_items(column)))])
    bounds = _map_bounds(column)
    sizes: Int64s = ends[bounds[1:]] - ends[bounds[:-1]]
    return sizes


def _map_bounds(column: pa.Array) -> Int64s:
    """Where each row's entries start and end in `_map_keys` and `_map_items`."""
    offsets: npt.NDArray[np.int32] = np.asarray(column.offsets)
    return offsets.astype(np.int64) - int(offsets[0])


def _map_keys(column: pa.Array) -> pa.Array:
    return _map_child(column, column.keys)


def _map_items(column: pa.Array) -> pa.Array:
    return _map_child(column, column.items)


def _map_child(column: pa.Array, child: pa.Array) -> pa.Array:
    """The entries that belong to this column: the child array also holds those before and after a slice."""
    offsets = np.asarray(column.offsets)
    return child.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))

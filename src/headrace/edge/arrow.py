"""Decodes Arrow data from the network; nothing else in the server does.

Three steps, in this order: what the bytes claim is bounded, then they are decoded, then every batch is validated in
full. Nothing else may touch a batch before that: even asking an unchecked batch for its size reads memory that its
sender chose. A batch returned from here is safe to slice, measure and concatenate.

An IPC stream is looked at message by message before anything of it is decoded. Arrow verifies the metadata of each
message, but not the sizes that it claims, and each compressed buffer says at its head how large it will be. All of them
together must be within the limit, so that decompression never gets more memory than that. Arrow itself refuses a buffer
that turns out larger than it claims. A dictionary counts again for each batch that uses it, since Arrow keeps and
validates it with each; what the values of a batch take without dictionaries and shared views is within the limit, too.

Flight decodes by itself, and gives no way to look at a message before: `batches_of_flight` bounds and validates what
comes out of it, and tells the connection that it was delivered.

Stateless and thread-safe. Invalid bytes raise `InvalidInput`. Decoding takes
time in proportion to `Claims.bytes`: keep what is large off the event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    ARROW_COLUMNS_MAX,
    ARROW_MESSAGES_MAX,
    ARROW_METADATA_BYTES_MAX,
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
)

# Each compressed buffer begins with its size when it is decompressed; this one says that it is not compressed.
_AS_IT_IS: Final = -1
_SIZE_BYTES: Final = 8
# Python raises the others while it looks at names and metadata that are not what they should be.
_MALFORMED: Final = (pa.ArrowException, OSError, EOFError, UnicodeError, struct.error, ValueError)
_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)
_NESTED: Final = "nested types are not supported, except a map of names to values, and dictionaries of plain values"


class Delivering(Protocol):
    """The connection that an upload comes by."""

    def half_open(self) -> AbstractContextManager[None]: ...

    def deliver(self, size: int) -> None: ...


class Claims(NamedTuple):
    """What an IPC stream says that it holds: bytes are those of all buffers after decompression."""

    rows: int
    bytes: int


class Stream:
    """An IPC stream whose claims are within the limits: at most `bytes_max` bytes, compressed or not.

    Creating one decodes nothing, and allocates nothing for what is claimed.
    """

    def __init__(self, body: bytes, bytes_max: int) -> None:
        self._body = body
        self._bytes_max = bytes_max
        # What its values take once they are decoded; known after `batch`.
        self.decoded_bytes = 0
        try:
            self.claims = _claims_of(body, bytes_max)
        except _MALFORMED as error:
            raise self._malformed(error) from None

    def batch(self) -> pa.RecordBatch:
        """Its batches as one, decoded and validated."""
        try:
            reader = pa.ipc.open_stream(pa.py_buffer(self._body), options=_OPTIONS)
            check_schema(reader.schema)
            batches = [self._counted(validated(batch)) for batch in reader]
            if len(batches) == 1:
                return batches[0]
            joined = pa.Table.from_batches(batches, reader.schema).combine_chunks().to_batches()
        except _MALFORMED as error:
            raise self._malformed(error) from None
        return joined[0] if joined else _no_rows(reader.schema)

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same batch, if what was decoded so far is within the limit."""
        self.decoded_bytes += sum(map(_expanded_bytes, batch.columns))
        if self.decoded_bytes > self._bytes_max:
            rule = f"at most {self._bytes_max} bytes, each repetition of a value counted"
            raise InvalidInput("body", f"{self.decoded_bytes} bytes when decoded", rule)
        return batch

    def _malformed(self, error: BaseException) -> InvalidInput:
        rule = f"it is not an Arrow IPC stream: {_shown(error)}"
        return InvalidInput("body", f"{len(self._body)} bytes", rule)


def batches_of_flight(reader: Any, connection: Delivering | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a Flight upload, each validated; one that is not valid ends the stream."""
    check_schema(reader.schema)
    _check_no_dictionaries(reader.schema)
    waiting = nullcontext() if connection is None else connection.half_open()
    while True:
        try:
            with waiting:
                chunk = reader.read_chunk()
        except StopIteration:
            return
        except pa.ArrowCancelled:
            raise
        except _MALFORMED as error:
            raise InvalidInput("batch", "not valid Arrow", _shown(error)) from None
        waiting = nullcontext()
        if connection is not None:
            connection.deliver(_wire_bytes(chunk))
        if chunk.data is not None:
            yield validated(chunk.data)


def _wire_bytes(chunk: Any) -> int:
    """How long the message of a chunk was, if that is known: all buffers are parts of it, but decompressed ones."""
    columns = () if chunk.data is None else chunk.data.columns
    part = next((buffer for column in columns for buffer in column.buffers() if buffer is not None), None)
    size = 0
    while part is not None and (part := part.parent) is not None:
        size = part.size
    return size


def check_schema(schema: pa.Schema) -> None:
    """Reject columns that no batch of messages has, before any of them is decoded."""
    if len(schema) > ARROW_COLUMNS_MAX:
        raise InvalidInput("columns", str(len(schema)), f"at most {ARROW_COLUMNS_MAX} columns")
    for place, field in enumerate(schema):
        try:
            # Names deep inside and time zones are decoded only when they are shown.
            name, shown = field.name, str(field.type)[:100]
        except UnicodeError:
            raise InvalidInput("column", f"number {place}", "its name and type must be UTF-8") from None
        if not _is_taken(field.type):
            raise InvalidInput(name[:100], f"of type {shown}", _NESTED)


def _check_no_dictionaries(schema: pa.Schema) -> None:
    """Reject dictionaries: a message without a header behind one of them ends the process, inside Arrow's reader."""
    for field in schema:
        kinds = (field.type.key_type, field.type.item_type) if pa.types.is_map(field.type) else (field.type,)
        if any(map(pa.types.is_dictionary, kinds)):
            rule = "dictionary-encoded columns are not taken over Flight: decode them (dictionary_decode), or use HTTP"
            raise InvalidInput(field.name[:100], f"of type {str(field.type)[:100]}", rule)


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch, if it is within the limits and every buffer, offset, index and text in it is sound."""
    if batch.num_rows > BATCH_ROWS_MAX:
        raise InvalidInput("batch", f"{batch.num_rows} rows", f"at most {BATCH_ROWS_MAX} rows in a batch")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput("batch", "not valid Arrow", _shown(error)) from None
    size = batch.get_total_buffer_size()
    # The buffers as they are may hold more than the rows do.
    if size > 2 * BATCH_BYTES_MAX and batch.nbytes > 2 * BATCH_BYTES_MAX:
        raise InvalidInput("batch", f"{size} bytes", f"at most {BATCH_BYTES_MAX} bytes in a batch")
    return batch


def _claims_of(body: bytes, bytes_max: int) -> Claims:
    if len(body) > bytes_max:
        raise InvalidInput("body", f"{len(body)} bytes", f"at most {bytes_max} bytes")
    rows = size = 0
    dictionaries: dict[int, int] = {}
    for count, message in enumerate(pa.ipc.MessageReader.open_stream(pa.py_buffer(body)), 1):
        if count > ARROW_MESSAGES_MAX:
            raise InvalidInput("body", f"more than {ARROW_MESSAGES_MAX} batches", "send fewer and larger batches")
        metadata = message.metadata
        if metadata.size > ARROW_METADATA_BYTES_MAX:
            rule = f"at most {ARROW_METADATA_BYTES_MAX} bytes of metadata in a message"
            raise InvalidInput("body", f"{metadata.size} bytes of metadata", rule)
        header = _Table.root(memoryview(metadata)).table(_MESSAGE_HEADER)
        if message.type == "schema":
            if header.number("<h", _SCHEMA_ENDIANNESS):
                raise InvalidInput("body", "big-endian", "it must be little-endian")
            continue
        claims = _claims_of_batch(header, message)
        rows, size = rows + claims.rows, size + claims.bytes
        if message.type == "dictionary":
            name = header.number("<q", _DICTIONARY_ID)
            before = dictionaries.get(name, 0) if header.number("<B", _DICTIONARY_IS_DELTA) else 0
            dictionaries[name] = before + claims.bytes
        else:
            size += sum(dictionaries.values())
        if rows > BATCH_ROWS_MAX:
            raise InvalidInput("body", f"{rows} rows", f"at most {BATCH_ROWS_MAX} rows in a batch")
        if size > bytes_max:
            raise InvalidInput("body", f"{size} bytes or more when decoded", f"at most {bytes_max} bytes")
    return Claims(rows, size)


def _claims_of_batch(header: _Table, message: pa.ipc.Message) -> Claims:
    is_dictionary = message.type == "dictionary"
    if not is_dictionary and message.type != "record batch":
        raise InvalidInput("body", f"with a message of type {message.type}", "it must contain record batches only")
    batch = header.table(_DICTIONARY_DATA) if is_dictionary else header
    rows = batch.number("<q", _BATCH_LENGTH)
    buffers = batch.pairs(_BATCH_BUFFERS)
    sizes = _decompressed(memoryview(message.body), buffers) if batch.has(_BATCH_COMPRESSION) else buffers[1::2]
    if rows < 0 or any(number < 0 for number in (*buffers, *sizes)):
        raise InvalidInput("body", "a negative length", "lengths must be 0 or more")
    return Claims(rows, sum(sizes))


def _decompressed(body: memoryview, buffers: Sequence[int]) -> list[int]:
    """What each compressed buffer claims to be once it is decompressed."""
    sizes = []
    for begin, length in zip(buffers[::2], buffers[1::2], strict=True):
        claimed = struct.unpack_from("<q", body, begin)[0] if length else 0
        sizes.append(length - _SIZE_BYTES if claimed == _AS_IT_IS else claimed)
    return sizes


def _expanded_bytes(column: pa.Array) -> int:
    """What the values of a validated column take when each repetition is stored: of dictionaries and of views."""
    kind = column.type
    if pa.types.is_map(kind):
        return _expanded_bytes(column.keys) + _expanded_bytes(column.items)
    if pa.types.is_dictionary(kind):
        lengths = _lengths(column.dictionary)
        return int(pc.sum(pa.array(lengths).take(column.indices)).as_py() or 0)
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        return int(_lengths(column).sum())
    return int(column.nbytes)


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of each value; those of null are 0."""
    kind = values.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        # A view is 16 bytes, the first four of which are its length; behind a null it may say anything.
        views = np.frombuffer(values.buffers()[1] or b"", np.int32).reshape(-1, 4)
        lengths = views[values.offset : values.offset + len(values), 0].astype(np.int64)
        return np.where(np.asarray(values.is_valid()), lengths, 0)
    if pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return np.full(len(values), 8, np.int64)
    return np.asarray(pc.binary_length(values).fill_null(0), np.int64)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _is_taken(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not isinstance(kind, pa.BaseExtensionType):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    return _is_plain(kind)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a type has no parts, or is a dictionary of one that has none; run-end encoding counts as a part."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return not (pa.types.is_dictionary(plain) or isinstance(plain, pa.BaseExtensionType)) and plain.num_fields == 0


def _shown(error: BaseException) -> str:
    """What Arrow says, made safe to show: it may quote what was sent."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()[:200]
    except UnicodeError:
        return "its text is not UTF-8"


# The places of fields in the tables of Arrow's metadata (Message.fbs and Schema.fbs), and where they are in the bytes.
_MESSAGE_HEADER: Final = 2
_SCHEMA_ENDIANNESS: Final = 0
_DICTIONARY_ID: Final = 0
_DICTIONARY_DATA: Final = 1
_DICTIONARY_IS_DELTA: Final = 2
_BATCH_LENGTH: Final = 0
_BATCH_BUFFERS: Final = 2
_BATCH_COMPRESSION: Final = 3


class _Table:
    """A table of a FlatBuffer. Arrow has verified it; a place outside of the bytes would be a `struct.error`."""

    def __init__(self, data: memoryview, begin: int) -> None:
        self._data = data
        self._begin = begin
        (back,) = struct.unpack_from("<i", data, begin)
        self._fields = begin - back
        (self._size,) = struct.unpack_from("<H", data, self._fields)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """The table that the bytes begin with."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def has(self, field: int) -> bool:
        """Whether a field is given."""
        return self._place(field) is not None

    def number(self, kind: str, field: int) -> int:
        """A number; 0 if it is not given."""
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(kind, self._data, place)[0])

    def table(self, field: int) -> _Table:
        """A table inside this one."""
        return _Table(self._data, self._followed(field))

    def pairs(self, field: int) -> Sequence[int]:
        """A vector of structs of two 64-bit numbers, one number after another; empty if it is not given."""
        if not self.has(field):
            return ()
        begin = self._followed(field)
        (count,) = struct.unpack_from("<I", self._data, begin)
        return struct.unpack_from(f"<{2 * count}q", self._data, begin + 4)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (distance,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._begin + distance if distance else None

    def _followed(self, field: int) -> int:
        place = self._place(field)
        if place is None:
            raise ValueError("a message has no content")
        return place + int(struct.unpack_from("<I", self._data, place)[0])

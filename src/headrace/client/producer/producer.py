"""The producer: single messages with a future each, or whole batches; sent in the background."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType

import pyarrow as pa

from headrace import tracing
from headrace.client import fork
from headrace.client.producer.buffer import SendBuffer
from headrace.client.producer.receipt import Receipt
from headrace.client.producer.sender import BatchSender
from headrace.client.producer.tables import ArrowData, one_batch, serialized_batch
from headrace.client.retry import Calls
from headrace.client.serializers import serialize_with
from headrace.client.settings import ProducerSettings
from headrace.client.transport.transport import Transport
from headrace.core.codecs import columns as codecs
from headrace.core.errors import CodecNotAllowed, InvalidInput, InvalidMessage, MessageTooLarge, Overloaded, again
from headrace.core.limits import ATTRIBUTES_PER_MESSAGE_MAX, SEQNO_MAX
from headrace.core.lists import repeated
from headrace.core.messages import check_columns
from headrace.core.positions import microseconds


class Producer:
    """Sends messages to one topic. Thread-safe; close it, or use it as a context manager.

    Errors are not lost if you ignore the futures: a flush, and the end of a `with` block, raise the first failure that
    no future has reported. A producer that is never closed sends its buffer when it is garbage-collected or the
    process exits, with a `ResourceWarning`. A forked process needs its own producer.

    A producer with an id numbers its messages, unless you give each a `seqno` of your own that rises with your input,
    such as a file position or a row id. After a crash the program writes nothing twice: it continues after
    `last_seqno`, or sends everything again, and what was written before comes back as `duplicate`.

    >>> from headrace.testing import embedded
    >>> with embedded() as client:
    ...     topic = client.create_topic("orders")
    ...     with client.producer("orders", producer_id="till-7") as producer:
    ...         future = producer.send(b"one loaf", key=b"user-1")
    ...     future.result()
    Receipt(partition=0, offset=0, status='written')
    """

    def __init__(self, transport: Transport, topic: str, settings: ProducerSettings, calls: Calls) -> None:
        serializers = (
            serialize_with("value", settings.serializer),
            serialize_with("key", settings.key_serializer),
        )
        self._generation = fork.generation
        self._topic = topic
        self._settings = settings
        self._buffer = SendBuffer(settings.linger_seconds, settings.batch_bytes_max, settings.buffer_bytes_max)
        self._sender = BatchSender(transport, topic, settings, self._buffer, calls)
        opening = self._sender.opening
        self._partitions, self._bytes_max = opening.partitions, opening.message_bytes_max
        self._codec = settings.codec
        self._serialize, self._serialize_key = serializers
        self._has_own_seqnos: bool | None = None
        self._numbering_lock = threading.Lock()
        if settings.codec not in opening.codecs:
            self.close()
            raise CodecNotAllowed("codec", repr(settings.codec), f"this topic allows {', '.join(opening.codecs)}", 0)

    def __repr__(self) -> str:
        name = "" if self._settings.producer_id is None else f" with producer id {self._settings.producer_id!r}"
        return f"<headrace.Producer of topic {self._topic!r}{name}{'' if self._sender.is_open else ' (closed)'}>"

    def send(
        self,
        value: object,
        key: object = None,
        attributes: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        created_at: datetime | None = None,
        timeout: float | None = None,
        *,
        seqno: int | None = None,
    ) -> Future[Receipt]:
        """Send one message; its future has the receipt once the message is durable on the broker.

        `value` and `key` are bytes, unless the producer has a serializer for them. None is null, which is not empty and
        never serialized: a message without a value says that what its key names was deleted (a tombstone).
        A `seqno` is your own number for the message: give one to every message of the producer, or to none. An invalid
        message raises here. If the buffer is full, this waits, and after the timeout raises `Overloaded`; then nothing
        was sent.
        """
        if self._generation != fork.generation:
            fork.check(self._generation, "this producer")
        if value is not None:
            if self._serialize is not None:
                value = self._serialize(value)
            elif not isinstance(value, bytes):
                value = _plain("value", value)
            if self._codec != "raw":
                value = codecs.compress(value, self._codec)
        if key is not None:
            if self._serialize_key is not None:
                key = self._serialize_key(key)
            elif not isinstance(key, bytes):
                key = _plain("key", key)
        size = (0 if value is None else len(value)) + (0 if key is None else len(key))
        if attributes is not None:
            attributes = _checked_attributes(attributes)
            size += sum(len(name.encode()) + len(item or b"") for name, item in attributes.items())
        if size > self._bytes_max:
            raise MessageTooLarge("message", f"{size} bytes", f"this topic allows at most {self._bytes_max} bytes", 0)
        if partition is not None:
            self._check_partition(partition)
        if (seqno is not None) is not self._has_own_seqnos:
            self._choose_numbering(seqno is not None)
        if seqno is not None:
            _check_seqno(seqno)
        created_us = None if created_at is None else microseconds(created_at, "created_at")
        patience = self._settings.timeout_seconds if timeout is None else timeout
        if tracing.active is None:
            return self._buffer.add(value, key, attributes, partition, created_us, seqno, size, patience)
        span, carried = tracing.active.start_send(self._topic, attributes)
        if tracing.TRACEPARENT not in (attributes or {}) and size + tracing.CONTEXT_BYTES <= self._bytes_max:
            attributes, size = carried, size + tracing.CONTEXT_BYTES
        with tracing.active.sending(span) as sent:
            return sent(self._buffer.add(value, key, attributes, partition, created_us, seqno, size, patience))

    @property
    def last_seqno(self) -> int | None:
        """The highest seqno known to be written for this producer's id, in earlier runs too; none if there is none."""
        return self._sender.last_seqno

    def send_batch(self, batch: ArrowData, timeout: float | None = None) -> pa.RecordBatch:
        """Send a batch in one commit and wait for its receipts, one per message in the order sent.

        A pyarrow RecordBatch or Table, or a DataFrame that speaks Arrow (polars, DuckDB, pandas 2.2). It needs a column
        `value`; it may have `key`, `attributes`, `codec`, `created_at`, `partition` and `seqno`.
        """
        receipts: pa.RecordBatch = self.submit_batch(batch, timeout).result()
        return receipts

    def submit_batch(self, batch: ArrowData, timeout: float | None = None) -> Future[pa.RecordBatch]:
        """Send a batch in one commit; its future has the receipts. Several may be in flight."""
        fork.check(self._generation, "this producer")
        batch = one_batch(batch)
        batch = serialized_batch(batch, self._serialize, self._serialize_key)
        names = check_columns(batch.schema)
        given = [name for name in ("producer_id", "message_group_id") if name in names]
        if given and self._settings.producer_id is not None:
            raise InvalidInput("column", repr(given[0]), "a producer with an id sets it itself: omit the column")
        if self._settings.producer_id is not None:
            self._choose_numbering("seqno" in names)
            if "seqno" in names and batch.column("seqno").null_count:
                raise InvalidInput("column", "'seqno' with nulls", "give every row a seqno, or omit the column")
        if self._codec != "raw" and "codec" not in names:
            batch = self._compressed(batch)
        has_seqnos = "seqno" in names and batch.column("seqno").null_count == 0
        is_repeatable = has_seqnos and self._sender.opening.drops_duplicates
        patience = self._settings.timeout_seconds if timeout is None else timeout
        if tracing.active is None:
            return self._buffer.add_batch(batch, is_repeatable, patience)
        span, batch = tracing.active.start_send_batch(self._topic, batch, self._bytes_max)
        with tracing.active.sending(span) as sent:
            return sent(self._buffer.add_batch(batch, is_repeatable, patience))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged; raises the first failure since the last flush."""
        fork.check(self._generation, "this producer")
        last = self._buffer.flush()
        if last is not None and not last.outcome.wait(timeout):
            raise Overloaded("the buffer of the producer", self._settings.buffer_bytes_max, timeout or 0.0)
        failure = self._sender.take_failure()
        if failure is not None:
            raise again(failure)

    def close(self) -> None:
        """Send the buffer, and close. Futures without an answer within the timeout fail.

        A signal handler or a callback in the middle of a call of the same producer does not wait: that call goes on.
        """
        if self._generation != fork.generation:
            # Only the process that made it can send what waits.
            return
        self._sender.close(self._settings.timeout_seconds + 1.0)

    def __del__(self) -> None:
        # Garbage may be collected in the middle of anything, so nothing is waited for here.
        sender = getattr(self, "_sender", None)
        if sender is not None and sender.is_open and self._generation == fork.generation:
            sender.end()
            line = f"a producer of topic {self._topic!r} was never closed: use `with`, or call close()"
            warnings.warn(line, ResourceWarning, stacklevel=1, source=self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        failure = self._sender.take_failure()
        if failure is not None and error is None:
            raise again(failure)

    def _choose_numbering(self, has_own_seqnos: bool) -> None:
        """The first message decides who assigns seqnos: mixed ones would look like duplicates of each other."""
        if has_own_seqnos and self._settings.producer_id is None:
            raise InvalidInput("seqno", "given", "a seqno needs a producer id: open the producer with producer_id")
        with self._numbering_lock:
            if self._has_own_seqnos is None:
                self._has_own_seqnos = has_own_seqnos
            if self._has_own_seqnos != has_own_seqnos:
                rule = "give a seqno to every message of a producer, or to none"
                raise InvalidInput("seqno", "missing" if self._has_own_seqnos else "given", rule)

    def _compressed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index("value")
        packed = batch.set_column(place, "value", codecs.encode(batch.column("value"), self._codec))
        return packed.append_column("codec", repeated(self._codec, batch.num_rows))

    def _check_partition(self, partition: int) -> None:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise InvalidMessage("partition", repr(partition)[:100], "it must be a whole number", 0)
        if partition >= self._partitions:
            # The topic may have grown since.
            self._partitions = self._sender.open().partitions
        if not 0 <= partition < self._partitions:
            raise InvalidMessage(
                "partition", str(partition), f"this topic has partitions 0 to {self._partitions - 1}", 0
            )


def _plain(field: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    parameter = "serializer" if field == "value" else f"{field}_serializer"
    name = "text" if isinstance(value, str) else "json"
    cure = f"send {field}.encode(), or " if isinstance(value, str) else ""
    rule = f"it must be bytes: {cure}open the producer with {parameter}={name!r}"
    raise InvalidMessage(field, f"a {type(value).__name__}", rule, 0)


def _check_seqno(seqno: object) -> None:
    if isinstance(seqno, bool) or not isinstance(seqno, int) or not 0 <= seqno <= SEQNO_MAX:
        raise InvalidMessage("seqno", repr(seqno)[:100], f"it must be a whole number from 0 to {SEQNO_MAX}", 0)


def _checked_attributes(attributes: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    checked = dict(attributes)
    if len(checked) > ATTRIBUTES_PER_MESSAGE_MAX:
        rule = f"a message may have at most {ATTRIBUTES_PER_MESSAGE_MAX}"
        raise InvalidMessage("attributes", f"{len(checked)} attributes", rule, 0)
    for name, item in checked.items():
        if not isinstance(name, str) or not isinstance(item, bytes | None):
            raise InvalidMessage("attributes", f"{name!r}"[:100], "names must be text and values bytes or None", 0)
    return checked

"""What clients read: rows of the broker as the batches of a response.

A batch is of one producer, codec, session and time. What was written by other protocols has no producer, and its offset
in place of a number; its key is a metadata item.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from headrace.protocols.ydb.names import (
    CODEC_ATTRIBUTE,
    CODEC_NUMBERS,
    CUSTOM_CODECS,
    KEY_ITEM,
    META_ATTRIBUTE,
    PARTITION_GROUP,
    RAW,
    TOMBSTONE_ITEM,
)
from headrace.protocols.ydb.services.topics import timestamp_of
from headrace.protocols.ydb.stubs import topic

ReadResponse = topic.StreamReadMessage.ReadResponse
# What a message counts beside its payload: its number, times and names.
MESSAGE_BYTES: Final = 64


def partition_data(session: int, batch: pa.RecordBatch) -> tuple[Any, int]:
    """Rows of one partition for its session, and the bytes that they count."""
    data = ReadResponse.PartitionData(partition_session_id=session)
    size = 0
    columns = {
        name: batch.column(name).to_pylist()
        for name in ("offset", "value", "key", "attributes", "producer_id", "message_group_id", "seqno", "codec")
    }
    created = batch.column("created_at").view(pa.int64()).to_pylist()
    written = batch.column("timestamp").view(pa.int64()).to_pylist()
    head: tuple[Any, ...] | None = None
    for row, offset in enumerate(columns["offset"]):
        producer, group = columns["producer_id"][row] or "", columns["message_group_id"][row] or ""
        codec = CODEC_NUMBERS[columns["codec"][row] or "raw"]
        meta: tuple[tuple[str, str], ...] = ()
        items = []
        for name, item in columns["attributes"][row] or ():
            if name == CODEC_ATTRIBUTE and codec == RAW and (custom := _custom(item)):
                codec = custom
            elif name.startswith(META_ATTRIBUTE):
                meta = (*meta, (name.removeprefix(META_ATTRIBUTE), (item or b"").decode(errors="replace")))
            else:
                items.append(topic.MetadataItem(key=name, value=item or b""))
        key, value = columns["key"][row], columns["value"][row]
        if key is not None:
            items.append(topic.MetadataItem(key=KEY_ITEM, value=key))
        if value is None:
            items.append(topic.MetadataItem(key=TOMBSTONE_ITEM))
            value = b""
        this = (producer, codec, meta, written[row])
        if this != head:
            head = this
            messages = data.batches.add(
                producer_id=producer, codec=codec, write_session_meta=dict(meta), written_at=timestamp_of(written[row])
            ).message_data
        seqno = columns["seqno"][row]
        message = messages.add(
            offset=offset,
            seq_no=offset + 1 if seqno is None else seqno,
            data=value,
            uncompressed_size=len(value) if codec == RAW else 0,
            message_group_id=producer if group.startswith(PARTITION_GROUP) else group,
            metadata_items=items,
        )
        message.created_at.CopyFrom(timestamp_of(written[row] if created[row] is None else created[row]))
        size += len(value) + MESSAGE_BYTES + sum(len(item.key) + len(item.value) for item in items)
    return data, size


def _custom(text: bytes | None) -> int | None:
    """The custom codec that an attribute names; another program may have written anything."""
    number = int(text) if text is not None and len(text) == 5 and text.isdigit() else 0
    return number if number in CUSTOM_CODECS else None

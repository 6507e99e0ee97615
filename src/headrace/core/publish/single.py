"""Planning one message: what `plan` decides about a batch, without whole columns.

A publisher that waits for each message makes commits of one row, and whole columns cost more than such a row holds. So
it is looked at as Python's own values, by the same rules in the same order. What is rare is left to `plan`, which tests
compare this with: repeated seqnos and long keys.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import partition_of
from headrace.core.hashes.murmur2 import partition_of as murmur2_partition_of
from headrace.core.publish.conflicts import digest_of
from headrace.core.publish.sources import NO_DIGEST, NO_LINK, NO_UPDATES, NOTHING_WRITTEN, SourceUpdates
from headrace.core.publish.state import TopicState
from headrace.core.topics.settings import TopicSettings

# A longer key is hashed by numpy.
_KEY_BYTES_MAX: Final = 256
_NO_LINK: Final = np.array([NO_LINK], np.int32)


class Placement(NamedTuple):
    """Where one message goes, the round-robin counter after it, and what its source becomes."""

    partition: int
    round_robin: int
    sources: SourceUpdates


def place_of(row: pa.RecordBatch, state: TopicState, settings: TopicSettings, time_us: int) -> Placement | None:
    """Decide about a canonical batch of one row; None leaves it to the planning of whole batches."""
    names = row.schema.names
    key = _value(row, names, "key") or b""
    if len(key) > _KEY_BYTES_MAX:
        return None
    producer = _value(row, names, "producer_id")
    source = (producer, _value(row, names, "message_group_id") or "") if producer else None
    seqno, link = NOTHING_WRITTEN, NO_LINK
    if source is not None:
        given = _value(row, names, "seqno")
        seqno = NOTHING_WRITTEN if given is None else given
        highest, link = state.sources.known(source, time_us)
        if settings.deduplication != "off" and NOTHING_WRITTEN < seqno <= highest:
            return None
    partition, round_robin = _value(row, names, "partition"), state.round_robin
    if partition is None and key:
        choose = murmur2_partition_of if settings.key_hash == "murmur2" else partition_of
        partition = choose(key, state.partitions)
    elif partition is None and link != NO_LINK:
        partition = link
    elif partition is None:
        partition, round_robin = round_robin % state.partitions, round_robin + 1
    if source is None:
        return Placement(partition, round_robin, NO_UPDATES)
    digest = NO_DIGEST if seqno == NOTHING_WRITTEN else digest_of(_value(row, names, "value"), key)
    linked = _NO_LINK if key else np.array([partition], np.int32)
    updates = SourceUpdates([source], np.array([seqno]), linked, np.array([digest]))
    return Placement(partition, round_robin, updates)


def _value(row: pa.RecordBatch, names: list[str], name: str) -> Any:
    """The value in a column, or None."""
    return row.column(name)[0].as_py() if name in names else None

"""What may be before a value: the header of a schema registry.

    byte 0     bytes 1 to 4, big-endian      the rest
    0          id of the writer's schema     a JSON document, or a record of Avro

Clients of Kafka that use a schema registry write it. A topic says so in its schema: `"framing": "registry"`. There is
no registry to ask, so the id is not looked up: every value is read by the topic's one schema. If the schema also names
`"schema_ids"`, a value with another id does not fit; otherwise a value that another schema wrote is judged by its bytes
alone, and one of Avro may happen to be a record of this schema too. Works on whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.limits import VALUE_SCHEMA_IDS_MAX
from headrace.core.values.types import wrong

HEADER_BYTES: Final = 5
_ID_MAX: Final = (1 << 32) - 1
_UNFRAMED: Final = "the value does not begin with the header of a schema registry"


@dataclass(frozen=True, slots=True)
class Framing:
    """Values begin with the header of a schema registry; of `schema_ids` only these fit, of None all."""

    schema_ids: frozenset[int] | None = None


def framing_of(given: Mapping[str, Any]) -> Framing | None:
    """What a schema says of the bytes before a value."""
    named, ids = given.get("framing"), given.get("schema_ids")
    if named not in (None, "none", "registry"):
        raise wrong("framing", named, "it must be none, or registry: a zero byte and a schema id of four bytes")
    if ids is None:
        return None if named != "registry" else Framing()
    if named != "registry":
        raise wrong("schema_ids", ids, 'only values with "framing": "registry" have ids')
    if not isinstance(ids, list) or not 0 < len(ids) <= VALUE_SCHEMA_IDS_MAX:
        raise wrong("schema_ids", ids, f"it must be a list of ids, from 1 to {VALUE_SCHEMA_IDS_MAX} of them")
    unknown = [each for each in ids if type(each) is not int or not 0 <= each <= _ID_MAX]
    if unknown:
        raise wrong("schema_ids", unknown[0], f"an id is a number from 0 to {_ID_MAX}")
    return Framing(frozenset(ids))


def unframe(framing: Framing, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The values without their headers; null, with the reason, where there is none or it has another id."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    is_given = np.asarray(values.is_valid())
    is_framed = is_given & (lengths >= HEADER_BYTES)
    is_framed[is_framed] = data[starts[is_framed]] == 0
    faults = dict.fromkeys(np.flatnonzero(is_given & ~is_framed).tolist(), _UNFRAMED)
    if framing.schema_ids is not None:
        rows = np.flatnonzero(is_framed)
        ids = data[starts[rows, None] + np.arange(1, HEADER_BYTES)].view(">u4").ravel() if len(rows) else rows
        is_other = ~np.isin(ids, list(framing.schema_ids))
        told = "the value has the schema id {}, which the schema does not name"
        faults |= {
            row: told.format(of) for row, of in zip(rows[is_other].tolist(), ids[is_other].tolist(), strict=True)
        }
        is_framed[rows[is_other]] = False
    return _without_headers(data[offsets[0] : offsets[-1]], starts - offsets[0], lengths, is_framed), faults


def _without_headers(data: Any, starts: Any, lengths: Any, is_framed: Any) -> pa.Array:
    """Values of these bytes without their first ones; null where they have no header."""
    is_kept = np.ones(len(data), bool)
    is_kept[starts[is_framed, None] + np.arange(HEADER_BYTES)] = False
    ends = np.cumsum(lengths - HEADER_BYTES * is_framed, dtype=np.int32)
    offsets, bodies = (pa.py_buffer(each) for each in (np.append(np.int32(0), ends), data[is_kept]))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [pa.array(is_framed).buffers()[1], offsets, bodies])

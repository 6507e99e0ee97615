"""Infers the JSON Schema of a topic's values from samples: what `headrace table infer` prints.

All samples that are JSON objects fit it. A property that all of them have is required; one of several types has none in
the schema, so it may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SCHEMA_DEPTH_MAX
from headrace.core.values.framing import HEADER_BYTES
from headrace.core.values.json import is_text_of
from headrace.core.values.schema import is_column_name


def infer_value_schema(values: Iterable[bytes | None]) -> dict[str, Any]:
    """The JSON Schema that all sample values fit which are JSON objects, with the header of a registry or without."""
    given = [value for value in values if value is not None]
    plain = _documents(given)
    framed = _documents(value[HEADER_BYTES:] for value in given if value.startswith(b"\0"))
    samples = max(plain, framed, key=len)
    if not samples:
        rule = "none of the messages that were looked at is a JSON object: a schema cannot be inferred"
        raise InvalidInput("topic", "without JSON objects", rule)
    return {**_object(samples), **({"framing": "registry"} if len(framed) > len(plain) else {})}


def _documents(values: Iterable[bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value in values:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            found.append(msgspec.json.decode(value, type=dict[str, Any]))
    return found


def _object(samples: list[dict[str, Any]], depth: int = 0) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in sample.items():
            found.setdefault(name, []).append(value)
    # Names are case-insensitive in tables: of two the first has a column.
    first = {name.lower(): name for name in reversed(found) if is_column_name(name)}
    found = {name: values for name, values in found.items() if first.get(name.lower()) == name}
    properties = {
        name: _inferred([value for value in values if value is not None], depth + 1) for name, values in found.items()
    }
    required = [name for name, values in found.items() if len(values) == len(samples) and None not in values]
    # An object without properties has no columns: its text is one.
    return {"type": "object", "properties": properties, "required": required} if properties else {}


def _inferred(values: list[Any], depth: int) -> dict[str, Any]:
    if depth >= VALUE_SCHEMA_DEPTH_MAX:
        return {}
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return {"type": "boolean"}
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in values):
        return {"type": "integer"}
    if kinds and kinds <= {int, float}:
        return {"type": "number"}
    if kinds == {dict}:
        return _object(values, depth)
    if kinds == {list}:
        items = [item for value in values for item in value if item is not None]
        return {"type": "array", "items": _inferred(items, depth + 1)}
    if kinds == {str}:
        for name in ("date", "date-time"):
            if all(is_text_of(name, value) for value in values):
                return {"type": "string", "format": name}
        return {"type": "string"}
    return {}

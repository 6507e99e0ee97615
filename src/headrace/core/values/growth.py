"""How the schema of a topic may change: it may only grow by optional fields.

Files of the archive were written by earlier schemas, and engines that know nothing of Headrace read all of them by the
names of columns: a column keeps its type for good. A required field may become optional. Values of Avro have their
fields in order and without names, so fields are added at the end of the record, where older values just end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.values.avro.schema import avro_record
from headrace.core.values.framing import Framing
from headrace.core.values.schema import ValueSchema
from headrace.core.values.types import ListOf, MapOf, ObjectOf, ValueField, ValueType, shown, wrong

_RULE = "a schema may only grow by optional fields"


def check_growth(before: ValueSchema, after: ValueSchema) -> None:
    """Refuse a change of schema other than growth; the error names the field and the rule."""
    if before.format != after.format:
        raise wrong("", after.format, f"its values were {before.format}: {_RULE}")
    _check_framing(before.framing, after.framing)
    _check_fields(before.fields, after.fields, "")
    if before.format == "avro":
        for place, (known, field) in enumerate(zip(before.fields, after.fields, strict=False)):
            if known.name != field.name:
                rule = f"the field at place {place + 1} was {known.name}: fields of Avro are added at the end"
                raise wrong(field.name, field.name, rule)
            if known.type != field.type:
                raise wrong(field.name, shown(field.type), "what is within a field of Avro cannot change")
        _check_encoding(before, after)


def _check_framing(before: Framing | None, after: Framing | None) -> None:
    if (before is None) != (after is None):
        told = "none" if after is None else "registry"
        raise wrong("framing", told, "what is before values cannot change: remove the schema first, then set another")
    if before is None or after is None or after.schema_ids is None:
        return
    if before.schema_ids is None:
        raise wrong("schema_ids", sorted(after.schema_ids), f"values with any id fitted: {_RULE}, and by ids")
    if before.schema_ids - after.schema_ids:
        raise wrong("schema_ids", min(before.schema_ids - after.schema_ids), "an id cannot be removed")


def _check_encoding(before: ValueSchema, after: ValueSchema) -> None:
    """Refuse an Avro schema by which values of before would be read as something else of the same type."""
    known, wanted = (avro_record(msgspec.json.decode(each.text)).plain["fields"] for each in (before, after))
    for one, other in zip(known, wanted, strict=False):
        if not _is_read_alike(one["type"], other["type"]):
            rule = "how a field of Avro is encoded cannot change: values of before would be read wrongly"
            raise wrong(one["name"], "another encoding", f"{rule}, {_RULE}")


def _is_read_alike(before: Any, after: Any) -> bool:
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        if before["type"] == "enum":
            # Symbols may be added at the end.
            return bool(after["symbols"][: len(before["symbols"])] == before["symbols"])
        return all(_is_read_alike(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(map(_is_read_alike, before, after))
    return bool(before == after)


def _check_fields(before: tuple[ValueField, ...], after: tuple[ValueField, ...], place: str) -> None:
    known, wanted = {field.name: field for field in before}, {field.name: field for field in after}
    for name, field in known.items():
        where = f"{place}.{name}".lstrip(".")
        if name not in wanted:
            raise wrong(where, "missing", f"a field cannot be removed: {_RULE}")
        if wanted[name].is_required and not field.is_required:
            raise wrong(where, "required", f"it was optional: {_RULE}")
        _check_type(field.type, wanted[name].type, where)
    for name, field in wanted.items():
        if name not in known and field.is_required:
            raise wrong(f"{place}.{name}".lstrip("."), "required", f"a new field must be optional: {_RULE}")


def _check_type(before: ValueType, after: ValueType, place: str) -> None:
    if isinstance(before, ListOf) and isinstance(after, ListOf):
        _check_type(before.items, after.items, f"{place}[]")
    elif isinstance(before, MapOf) and isinstance(after, MapOf):
        _check_type(before.values, after.values, f"{place}{{}}")
    elif isinstance(before, ObjectOf) and isinstance(after, ObjectOf):
        _check_fields(before.fields, after.fields, place)
    elif before != after:
        raise wrong(place, shown(after), f"its type was {shown(before)} and cannot change: {_RULE}")

"""How the schema of a topic may change: it may only grow by optional fields.

Files of the archive were written by earlier schemas, and engines that know nothing of Headrace read all of them by the
names of columns: a column keeps its type for good. A required field may become optional. Values of Avro have their
fields in order and without names, so fields are added at the end of the record, where older values just end.
"""

from __future__ import annotations

from headrace.core.values.schema import ListOf, ObjectOf, ValueField, ValueSchema, ValueType, shown, wrong

_RULE = "a schema may only grow by optional fields"


def check_growth(before: ValueSchema, after: ValueSchema) -> None:
    """Refuse a change of schema other than growth; the error names the field and the rule."""
    if before.format != after.format:
        raise wrong("", after.format, f"its values were {before.format}: {_RULE}")
    _check_fields(before.fields, after.fields, "")
    if before.format == "avro":
        for place, (known, field) in enumerate(zip(before.fields, after.fields, strict=False)):
            if known.name != field.name:
                rule = f"the field at place {place + 1} was {known.name}: fields of Avro are added at the end"
                raise wrong(field.name, field.name, rule)
            if known.type != field.type:
                raise wrong(field.name, shown(field.type), "what is within a field of Avro cannot change")


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
    elif isinstance(before, ObjectOf) and isinstance(after, ObjectOf):
        _check_fields(before.fields, after.fields, place)
    elif before != after:
        raise wrong(place, shown(after), f"its type was {shown(before)} and cannot change: {_RULE}")

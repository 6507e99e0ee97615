"""JSON Schema as types of fields.

Read is what concerns columns: `type`, `format` (`date-time`, `date`), `properties`, `items`, `required`, and of an
object without `properties` the `additionalProperties`: it has any keys, and is a map. A property without a type may be
anything, and is the text of its JSON. Other keywords, such as `minimum`, are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.core.values.types import ListOf, MapOf, ObjectOf, ValueField, ValueType, check_depth, wrong

_TYPES: Final = ("integer", "number", "string", "boolean", "object", "array")


def json_type(given: Any, place: str, depth: int) -> ValueType:
    """The type that a JSON Schema describes, at a place of the whole one."""
    check_depth(place, depth)
    if not isinstance(given, Mapping):
        raise wrong(place, given, "it must be an object with a type")
    named = given.get("type")
    if isinstance(named, list):
        others = [each for each in named if each != "null"]
        named = others[0] if len(others) == 1 else None
    if named is None:
        return "any"
    if named not in _TYPES:
        raise wrong(place, named, f"its type must be one of {', '.join(_TYPES)}")
    if named == "array":
        return ListOf(json_type(given.get("items", {}), f"{place}[]", depth + 1))
    if named != "object":
        has_format = named == "string" and given.get("format") in ("date-time", "date")
        return str(given["format"] if has_format else named)
    return _object(given, place, depth)


def _object(given: Mapping[str, Any], place: str, depth: int) -> ObjectOf | MapOf:
    properties, required = given.get("properties"), given.get("required", [])
    free = given.get("additionalProperties", False)
    if not properties and free is not False:
        return MapOf("any" if free is True else json_type(free, f"{place}{{}}", depth + 1))
    if not isinstance(properties, Mapping) or not properties:
        raise wrong(place, properties, "it needs properties, at least one, or additionalProperties with a type")
    if not isinstance(required, list):
        raise wrong(f"{place}.required".lstrip("."), required, "it must be a list of properties")
    unknown = [name for name in required if not isinstance(name, str) or name not in properties]
    if unknown:
        raise wrong(f"{place}.required".lstrip("."), unknown[0], "it must be one of the properties")
    fields = (
        ValueField(
            name,
            json_type(each, f"{place}.{name}".lstrip("."), depth + 1),
            name in required and not _may_be_null(each),
        )
        for name, each in properties.items()
    )
    return ObjectOf(tuple(fields))


def _may_be_null(given: Any) -> bool:
    return isinstance(given.get("type"), list) and "null" in given["type"]

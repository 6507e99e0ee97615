"""Which rows of a batch fulfil a condition: whole Arrow columns at once. Pure, safe for threads.

Fields of JSON values are parsed by Arrow's JSON reader with exactly the wanted fields and types, for all values of a
batch together. Where that fails, because a value is broken or a field has another type somewhere, the values of that
batch are parsed one by one.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from headrace.client.where.expression import (
    AnyOf,
    Anywhere,
    Comparison,
    Condition,
    Contains,
    Every,
    FieldPath,
    Not,
    fields,
)

_COMPARE: Final = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# The Arrow type of a JSON field that is compared with a literal of a type.
_TYPES: Final = {str: pa.string(), float: pa.float64(), bool: pa.bool_()}
_MISSING: Final = object()


def matches(condition: Condition, batch: pa.RecordBatch) -> pa.BooleanArray:
    """One truth value for each row."""
    return pc.fill_null(_Matching(condition, batch).evaluate(condition), False)


class _Matching:
    """One condition over one batch; JSON fields are extracted once."""

    def __init__(self, condition: Condition, batch: pa.RecordBatch) -> None:
        self._batch = batch
        wanted = {
            (each.field.path, _type_of(each))
            for each in fields(condition)
            if each.field.column == "value" and each.field.path
        }
        self._json = _extract(batch.column("value"), wanted) if wanted else {}

    def evaluate(self, condition: Condition) -> Any:
        if isinstance(condition, Every):
            return _reduced(pc.and_kleene, [self._definite(each) for each in condition.conditions])
        if isinstance(condition, AnyOf):
            return _reduced(pc.or_kleene, [self._definite(each) for each in condition.conditions])
        if isinstance(condition, Not):
            return pc.invert(self._definite(condition.condition))
        if isinstance(condition, Anywhere):
            return self._anywhere(condition.text)
        column = self._column(condition)
        if isinstance(condition, Contains):
            return pc.match_substring(column, condition.text)
        if condition.literal is None:
            return pc.is_null(column) if condition.operator == "==" else pc.is_valid(column)
        literal = condition.literal
        scalar = literal.encode() if isinstance(literal, str) and pa.types.is_binary(column.type) else literal
        return _COMPARE[condition.operator](column, pa.scalar(scalar, column.type))

    def _definite(self, condition: Condition) -> Any:
        return pc.fill_null(self.evaluate(condition), False)

    def _column(self, condition: Comparison | Contains) -> Any:
        field: FieldPath = condition.field
        if field.column == "value":
            return self._json[field.path, _type_of(condition)] if field.path else self._batch.column("value")
        if field.column == "attributes":
            return pc.map_lookup(self._batch.column("attributes"), pa.scalar(field.path[0]), "first")
        column = self._batch.column(field.column)
        return column.cast(pa.float64(), safe=False) if pa.types.is_integer(column.type) else column

    def _anywhere(self, text: str) -> Any:
        found = pc.match_substring(self._batch.column("value"), text, ignore_case=True)
        key = pc.match_substring(self._batch.column("key"), text, ignore_case=True)
        found = pc.or_kleene(pc.fill_null(found, False), pc.fill_null(key, False))
        attributes = self._batch.column("attributes")
        if attributes.null_count == len(attributes):
            return found
        pairs = pa.ListArray.from_arrays(attributes.offsets, pa.array(range(len(attributes.items)), pa.int64()))
        within = pc.fill_null(pc.match_substring(attributes.items, text, ignore_case=True), False)
        rows = np.zeros(len(attributes), bool)
        chosen = pc.take(within, pc.list_flatten(pairs))
        rows[pc.filter(pc.list_parent_indices(pairs), chosen).to_numpy(zero_copy_only=False)] = True
        return pc.or_(found, pa.array(rows))


def _reduced(function: Any, parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = function(found, part)
    return found


def _type_of(condition: Comparison | Contains) -> Any:
    """The type that a JSON field must have to fulfil the condition; null for `== None`, which any type fulfils."""
    if isinstance(condition, Contains):
        return pa.string()
    return pa.null() if condition.literal is None else _TYPES[type(condition.literal)]


Wanted = tuple[tuple[str, ...], Any]


def _extract(values: pa.Array, wanted: set[Wanted]) -> dict[Wanted, Any]:
    """The wanted fields of JSON values as columns; null where a value has no such field of that type."""
    paths = [path for path, _ in wanted]
    is_simple = len(set(paths)) == len(paths) and all(kind != pa.null() for _, kind in wanted)
    if is_simple and not any(a != b and b[: len(a)] == a for a in paths for b in paths):
        found = _extract_at_once(values, wanted)
        if found is not None:
            return found
    return _extract_one_by_one(values, wanted)


def _extract_at_once(values: pa.Array, wanted: set[Wanted]) -> dict[Wanted, Any] | None:
    """By Arrow's reader; None if any value does not fit."""
    # A newline in JSON text is a space, since within strings it is escaped.
    lines = pc.replace_substring(values, "\n", " ")
    is_object = pc.fill_null(pc.match_substring_regex(lines, r"^\s*\{"), False)
    objects = lines.filter(is_object)
    if not len(objects):
        return {each: pa.nulls(len(values), each[1]) for each in wanted}
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(objects)], objects), b"\n")[0].as_buffer()
    options = pa_json.ParseOptions(explicit_schema=_schema(wanted), unexpected_field_behavior="ignore")
    try:
        table = pa_json.read_json(
            pa.BufferReader(joined),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=options,
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != len(objects):
        return None
    # Where the objects stand among the values; null elsewhere.
    places = pc.subtract(pc.cumulative_sum(is_object.cast(pa.int64())), 1)
    places = pc.if_else(is_object, places, pa.scalar(None, pa.int64()))
    return {each: pc.take(_within(table, each[0]), places) for each in wanted}


def _schema(wanted: set[Wanted]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for path, kind in wanted:
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = kind
    return pa.schema([pa.field(name, _typed(branch)) for name, branch in tree.items()])


def _typed(branch: Any) -> Any:
    if not isinstance(branch, dict):
        return branch
    return pa.struct([pa.field(name, _typed(each)) for name, each in branch.items()])


def _within(table: pa.Table, path: tuple[str, ...]) -> Any:
    column = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _extract_one_by_one(values: pa.Array, wanted: set[Wanted]) -> dict[Wanted, Any]:
    columns: dict[Wanted, list[Any]] = {each: [] for each in wanted}
    for value in values.to_pylist():
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            decoded = None
        for (path, kind), column in columns.items():
            column.append(_fitting(decoded, path, kind))
    # Of a null type, any text stands for a value that exists.
    return {
        each: pa.array(column, pa.string() if each[1] == pa.null() else each[1]) for each, column in columns.items()
    }


def _fitting(decoded: Any, path: tuple[str, ...], kind: Any) -> Any:
    found = decoded
    for name in path:
        found = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
    if found is _MISSING or found is None:
        return None
    if kind == pa.null():
        return "there"
    if kind == pa.bool_():
        return found if isinstance(found, bool) else None
    if kind == pa.string():
        return found if isinstance(found, str) else None
    try:
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
    except OverflowError:
        return None

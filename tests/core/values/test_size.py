"""Values that would become far more memory than they have bytes, and how deep they may be nested."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.limits import VALUE_CELLS_MAX, VALUE_DEPTH_MAX, VALUE_SLICE_ROWS
from headrace.core.values import size
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.size import TOO_DEEP, TOO_MANY_ITEMS, cells_of_item, cells_of_row, json_excess
from tests.core.values.test_growth import record
from tests.core.values.test_schema import of

INTEGER = {"type": "integer"}
WIDE = of(**{f"f{place}": INTEGER for place in range(100)})
TEXTS = ("a,b", "[[{", "\\", '"', '\\"', "é,:", 'x\\\\"}', "\\\\", 1, None, True)


def errors(schema: Any, *values: bytes) -> list[str | None]:
    parser = ValueParser(parse_value_schema(schema))
    found: list[str | None] = parser.parse(pa.array(values, pa.binary()))["value_error"].to_pylist()
    return found


def nested(levels: int) -> bytes:
    return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_the_depth_of_a_value_does_not_depend_on_who_parses_it() -> None:
    def below(frames: int) -> list[str | None]:
        return below(frames - 1) if frames else errors(of(a={}), nested(VALUE_DEPTH_MAX), nested(VALUE_DEPTH_MAX + 1))

    assert below(0) == below(200) == [None, TOO_DEEP]
    text = b'{"a": "' + b"[" * (2 * VALUE_DEPTH_MAX) + b'"}'
    assert errors(of(a={"type": "string"}), text) == [None], "brackets of a string do not count"


def test_a_caller_that_leaves_no_room_for_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "VALUE_DEPTH_MAX", sys.getrecursionlimit() * 100)
    assert errors(of(a={}), nested(100_000)) == [TOO_DEEP]


def test_lists_of_empty_objects() -> None:
    many = b'{"rows": [' + b"{}, " * 300_000 + b"{}]}"
    assert errors(of(rows={"type": "array", "items": WIDE}), many, b'{"rows": [{}]}') == [TOO_MANY_ITEMS, None]
    assert errors(of(other=INTEGER), many) == [None], "what no column has does not count"
    nulls = b'{"rows": [' + b"null," * 50_000 + b"null]}"
    assert errors(of(rows={"type": "array", "items": WIDE}), nulls) == [TOO_MANY_ITEMS]
    numbers = b'{"rows": [' + b"1," * 500_000 + b"1]}"
    assert errors(of(rows={"type": "array", "items": INTEGER}), numbers) == [None], "a million bytes of numbers fit"


def test_maps_of_empty_objects() -> None:
    def members(of: bytes, count: int) -> bytes:
        return b'{"rows": {' + b",".join(b'"%d": %s' % (place, of) for place in range(count)) + b"}}"

    wide = of(rows={"type": "object", "additionalProperties": WIDE}, other=INTEGER)
    many = members(b"{}", 100_000)
    assert errors(wide, many, members(b"{}", 10)) == [TOO_MANY_ITEMS, None]
    assert errors(wide, members(b"null", 60_000)) == [TOO_MANY_ITEMS], "null has a cell of every column too"
    assert errors(of(other=INTEGER, map={"type": "object", "additionalProperties": INTEGER}), many) == [None]
    full = b"{" + b",".join(b'"f%d": 1' % place for place in range(100)) + b"}"
    assert errors(wide, members(full, 2000)) == [None], "members of objects that are no maps are no items"
    deep = {"type": "array", "items": {"type": "object", "additionalProperties": INTEGER}}
    assert errors(of(rows=deep), b'{"rows": [' + many[9:-1] + b"]}") == [
        "the field rows[0][...]: expected integer, got object"
    ]


def test_items_of_avro_that_are_many_objects() -> None:
    """A byte each, and a dozen dictionaries: they are counted before they are decoded."""
    item = record(("a", "boolean")) | {"name": "r0"}
    for level in range(1, 12):
        item = record(("a", item)) | {"name": f"r{level}"}
    schema = record(("rows", {"type": "array", "items": item}))
    many = b"\x80\x89\x7a" + b"\x01" * 1_000_000 + b"\0"
    tracemalloc.start()
    try:
        assert errors(schema, many) == [TOO_MANY_ITEMS]
        assert tracemalloc.get_traced_memory()[1] < 20 * len(many)
    finally:
        tracemalloc.stop()


def test_lists_of_avro() -> None:
    item = record(*((f"f{place}", "long") for place in range(100))) | {"name": "item"}
    schema = record(("rows", {"type": "array", "items": ["null", item]}))
    nulls = b"\xe0\xb6\x0d" + b"\0" * 110_000  # a hundred and ten thousand items
    few = b"\x04\0\0\0"
    assert errors(schema, nulls + b"\0", few) == [TOO_MANY_ITEMS, None]
    assert errors(schema, few + b"\0" * 110_000) == ["the value is not a record of the schema"]
    large = record(("raw", "bytes"), ("rows", {"type": "array", "items": "long"}))
    assert errors(large, b"\x80\x80\x80\x02" + b"x" * (2 << 20) + few) == [None], "large is not many"
    nests = record(("in", record(("rows", {"type": "array", "items": {"type": "array", "items": "long"}}))))
    nests["fields"][0]["type"]["name"] = "in"
    assert errors(nests, b"\x80\x89\x7a" + b"\0" * 1_000_000 + b"\0") == [TOO_MANY_ITEMS]


def test_what_is_parsed_at_once_is_bounded_by_its_cells() -> None:
    wide = parse_value_schema(of(rows={"type": "array", "items": WIDE}))
    assert (cells_of_row(wide.fields), cells_of_item(wide.fields)) == (1, 108)
    nests = parse_value_schema(of(a=of(b={"type": "array", "items": {"type": "array", "items": WIDE}}), c={}))
    assert (cells_of_row(nests.fields), cells_of_item(nests.fields)) == (6, 108)
    # One large value after many small ones: slices are not by the mean.
    value = b'{"rows": [' + b"{}," * 2000 + b"{}]}"
    values = pa.array([b"{}"] * VALUE_SLICE_ROWS + [value] * 50, pa.binary())
    slices = list(ValueParser(wide).slices(values))
    assert sum(each.num_rows for each in slices) == len(values)
    assert max(len(each.column("rows").flatten()) for each in slices) * 108 <= VALUE_CELLS_MAX
    fields = parse_value_schema(of(**{f"f{place}": INTEGER for place in range(1000)}))
    slices = list(ValueParser(fields).slices(pa.array([b"{}"] * VALUE_SLICE_ROWS, pa.binary())))
    assert max(each.num_rows for each in slices) == VALUE_CELLS_MAX // 1000


def _random(rnd: random.Random, levels: int) -> Any:
    if levels == 0 or rnd.random() < 0.3:
        return rnd.choice(TEXTS)
    if rnd.random() < 0.5:
        return [_random(rnd, levels - 1) for _ in range(rnd.randint(1, 5))]
    return {rnd.choice('abc,:"\\[') * rnd.randint(1, 3): _random(rnd, levels - 1) for _ in range(rnd.randint(1, 5))}


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner))


def _items(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_items, value.values()))
    return len(value) + sum(map(_items, value)) if isinstance(value, list) else 0


def test_depth_and_items_are_those_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    rnd = random.Random(3)
    monkeypatch.setattr(size, "_CHUNK_BYTES", 7)
    for _ in range(500):
        document = [_random(rnd, 6)]
        value = json.dumps(document, ensure_ascii=rnd.random() < 0.5).encode() + b" " * 10
        depth, items = _depth(document), _items(document)
        for depth_max, items_max, told in (
            (depth, items, None), (depth - 1, items, TOO_DEEP), (depth, items - 1, TOO_MANY_ITEMS),
        ):  # fmt: skip
            monkeypatch.setattr(size, "VALUE_DEPTH_MAX", depth_max)
            monkeypatch.setattr(size, "VALUE_CELLS_MAX", items_max)
            assert json_excess(value, 1) == told, value

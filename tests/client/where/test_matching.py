"""Conditions over batches: the fast path and the slow one give the same, whatever values hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.where import matching
from headrace.client.where.expression import Anywhere, Condition, parse
from headrace.core.messages import READ_SCHEMA

ORDERS = [
    {"amount": 50, "customer": {"name": "ann"}, "paid": True},
    {"amount": 150.5, "customer": {"name": "bob"}, "paid": False},
    {"amount": 250, "customer": None, "note": "line\nbreak"},
    {"other": 1},
]
ODD = [b"", b"no json", b"[1]", b"17", b'{"amount": ', b"\xff\xfe\x00", b'{"amount": "300"}', b'{"amount": 1e999}']


def batch_of(values: list[bytes], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(values)
    columns: dict[str, Any] = {
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "value": values,
        "key": keys or [b"user-%d" % number for number in range(count)],
        "attributes": [[("kind", b"sale")] if number % 2 else None for number in range(count)],
    }
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in READ_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=READ_SCHEMA)


def found(condition: str | Condition, values: list[bytes]) -> list[int]:
    parsed = parse(condition) if isinstance(condition, str) else condition
    chosen = matching.matches(parsed, batch_of(values)).to_pylist()
    # Around it, rows that a slice hides: what is computed must not look at them.
    padded = batch_of([b'{"amount": 1000}', *values, b'{"amount": 1000}']).slice(1, len(values))
    if not any(part in str(condition) for part in ("user-", "offset", "kind", "sale")):
        assert matching.matches(parsed, padded).to_pylist() == chosen
    return [row for row, is_chosen in enumerate(chosen) if is_chosen]


CLEAN = [json.dumps(order).encode() for order in ORDERS]

EXPECTED = [
    ("value.amount > 100", [1, 2]),
    ("not value.amount > 100", [0, 3]),
    ("value.customer.name == 'ann'", [0]),
    ("value.customer.name != 'ann'", [1]),
    ("value.paid", [0]),
    ("value.paid == False", [1]),
    ("value.amount == None", [3]),
    ("value.customer.name in ('ann', 'bob') and value.amount < 100", [0]),
    ("value.amount > 200 or value.customer.name == 'ann'", [0, 2]),
    ("'bob' in value", [1]),
    ("'o' in value.customer.name", [1]),
    ("key == 'user-2'", [2]),
    ("attributes.kind == 'sale'", [1, 3]),
    ("offset >= 2 and partition == 0", [2, 3]),
    ("seqno == None", [0, 1, 2, 3]),
    ("value.amount > 100 and value.amount == '150.5'", []),
]


@pytest.mark.parametrize(("text", "rows"), EXPECTED, ids=[text for text, _ in EXPECTED])
def test_rows_that_fulfil_a_condition(text: str, rows: list[int]) -> None:
    assert found(text, CLEAN) == rows
    # Odd values behind them change nothing for those before.
    assert [row for row in found(text, [*CLEAN, *ODD]) if row < len(CLEAN)] == rows


def test_clean_values_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_extract_one_by_one", lambda *_: pytest.fail("one by one"))
    pretty = [json.dumps(order, indent=2).encode() for order in ORDERS]
    assert found("value.amount > 100 and value.customer.name == 'bob'", [*pretty, b"no json", b"", b"[1]"]) == [1]
    assert found("value.amount > 100", [b"text", b"only"]) == []


def test_a_value_of_another_type_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("value.amount > 100", [b'{"amount": "300"}', b'{"amount": 300}', b'{"amount": true}']) == [1]
    assert found("value.amount == '300'", [b'{"amount": "300"}', b'{"amount": 300}']) == [0]
    deep = b'{"amount":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert found("value.amount > 1", [deep, b'{"amount": 2}']) == [1]


def test_text_is_found_in_key_attributes_and_value_whatever_its_case() -> None:
    assert found(Anywhere("BOB"), CLEAN) == [1]
    assert found(Anywhere("user-3"), CLEAN) == [3]
    assert found(Anywhere("sale"), CLEAN) == [1, 3]
    assert found(Anywhere(".*"), CLEAN) == []

"""Expressions: what they mean, and what they refuse."""

from __future__ import annotations

import pytest

from headrace.client.where.expression import (
    AnyOf,
    Comparison,
    Contains,
    Every,
    FieldPath,
    Not,
    parse,
)
from headrace.core.errors import InvalidInput

AMOUNT = FieldPath("value", ("amount",))


def test_comparisons() -> None:
    assert parse("value.amount > 100") == Comparison(AMOUNT, ">", 100.0)
    assert parse("-1.5 <= value.amount") == Comparison(AMOUNT, ">=", -1.5)
    assert parse('value["a b"].c == "x"') == Comparison(FieldPath("value", ("a b", "c")), "==", "x")
    assert parse("attributes.kind != 'sale'") == Comparison(FieldPath("attributes", ("kind",)), "!=", "sale")
    assert parse("value.error == None") == Comparison(FieldPath("value", ("error",)), "==", None)
    assert parse("value.paid") == Comparison(FieldPath("value", ("paid",)), "==", True)


def test_composition() -> None:
    big, first = Comparison(AMOUNT, ">", 1.0), Comparison(FieldPath("partition"), "==", 0.0)
    assert parse("value.amount > 1 and partition == 0") == Every((big, first))
    assert parse("not (value.amount > 1 or partition == 0)") == Not(AnyOf((big, first)))
    assert parse("1 < value.amount < 9") == Every((big, Comparison(AMOUNT, "<", 9.0)))
    assert parse("'x' in value") == Contains(FieldPath("value"), "x")
    assert parse("'x' not in key") == Not(Contains(FieldPath("key"), "x"))
    country = FieldPath("value", ("country",))
    choice = AnyOf((Comparison(country, "==", "DE"), Comparison(country, "==", "FR")))
    assert parse("value.country in ('DE', 'FR')") == choice


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is no expression"),
        ("value.amount >", "it is no expression"),
        ("__import__('os').system('true')", "is no condition"),
        ("value.amount > (lambda: 1)()", "is neither a number"),
        ("value.amount > value.limit", "is neither a number"),
        ("[x for x in value] == 1", "is neither a number"),
        ("value.__class__.__mro__[1] == 1", "is no field"),
        ("open == 1", "open is no field: there are value"),
        ("value.amount is 1", "an operator that is not allowed"),
        ("f'{key}' == key", "is neither a number"),
        ("offset == 'a'", "offset is a number"),
        ("key > 1", "key is text"),
        ("value.paid > True", "has no order"),
        ("value.amount > 1" + "0" * 400, "is too large"),
        ("(" * 490 + "1" + ")" * 490, "it is no expression"),
        ("not " * 240 + "key", "key is text"),
        ("value.amount > 1 " + "and 1" * 400, "at most 1000 characters"),
        ("1 == 1", "is no field"),
        ("'a' in 'b'", "is no field"),
        ("1 in value.tags", "is no text"),
        ("attributes == 'a'", "attributes is no field"),
        ("value" + ".a" * 490 + "()", "nested too deeply"),
        ("-" * 990 + "1", "nested too deeply"),
        (r'value == "\ud800"', "it is no expression"),
        (r'value["\ud800"] == 1', "it is no expression"),
        ("value.country in ()", "is empty"),
    ],
)
def test_what_is_not_an_expression_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert told in str(refused.value)

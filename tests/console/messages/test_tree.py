"""JSON as nodes that a browser folds: all of it text, and never more than a page can bear."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.console.messages import tree
from headrace.console.messages.payload import forms
from headrace.console.messages.tree import tree_of


def nodes(value: bytes) -> Any:
    found = tree_of(value)
    assert found is not None
    return json.loads(found)


def test_objects_arrays_and_what_is_in_them() -> None:
    value = b'{"order": 7, "paid": true, "lines": [{"name": "tea", "price": 1.50}, null], "none": {}}'
    line = ["{", 2, ['"name"', ["s", '"tea"'], '"price"', ["n", "1.50"]]]
    assert nodes(value) == [
        "{",
        4,
        [
            '"order"',
            ["n", "7"],
            '"paid"',
            ["w", "true"],
            '"lines"',
            ["[", 2, [line, ["w", "null"]]],
            '"none"',
            ["{", 0, []],
        ],
    ]


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "1e400", "-0.10", "NaN"])
def test_a_number_is_shown_as_it_was_written(number: str) -> None:
    assert nodes(b"[%s]" % number.encode()) == ["[", 1, [["n", number]]]


def test_half_of_a_surrogate_pair_is_shown_as_an_escape() -> None:
    value = b'{"\\ud83d": "\\udfff!", "whole": "\\ud83d\\ude00"}'
    assert nodes(value) == ["{", 2, ['"\\ud83d"', ["s", '"\\udfff!"'], '"whole"', ["s", '"\U0001f600"']]]
    assert b"\\udfff!" in forms(value)["JSON"].encode()


def test_text_that_hides_or_reorders_is_shown_as_escapes() -> None:
    assert nodes(b'["a\\u202eb", "\\u001b[2J<b>"]') == [
        "[",
        2,
        [["s", '"a\\u202eb"'], ["s", '"\\u001b[2J<b>"']],
    ]


@pytest.mark.parametrize(
    "value", [b"7", b'"text"', b"{broken", b"[" * 100_000, b"\xff\xfe", b"", b"[" + b" " * (1 << 20) + b"]"]
)
def test_what_is_no_object_or_array_has_no_tree(value: bytes) -> None:
    assert tree_of(value) is None


def test_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "NODES_MAX", 4)
    kind, count, items = nodes(b"[1,2,3,4,5,6]")
    assert (kind, count, len(items)) == ("[", 6, 3)
    kind, count, fields = nodes(b'{"a":1,"b":2,"c":3,"d":4,"e":5}')
    assert (kind, count, len(fields)) == ("{", 5, 6)


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "TEXT_CHARACTERS_MAX", 5)
    monkeypatch.setattr(tree, "CHARACTERS_MAX", 8)
    assert nodes(b'["abcdefgh", "b", "c"]') == ["[", 3, [["s", '"abcd…'], ["s", '"b"']]]

"""Names and ids: what is refused and why, and which names are the same topic."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import InvalidInput
from headrace.core.limits import COMBINING_MARKS_MAX, ID_CHARACTERS_MAX, NAME_CHARACTERS_MAX
from headrace.core.names import _marks, check_group_name, check_id, check_topic_name, composed, topic_key


@pytest.mark.parametrize("name", ["a", "Orders", "all_topics", 'it\'s "quoted"', "süß 🚰", "a/b.c", "x" * 255, " "])
def test_good_names_are_kept_as_they_are(name: str) -> None:
    assert check_topic_name(name) == name
    assert check_group_name(name) == name
    assert check_id("member id", name) == name


def test_names_are_composed_before_they_are_counted() -> None:
    decomposed = "e\N{COMBINING ACUTE ACCENT}" * NAME_CHARACTERS_MAX
    assert check_topic_name(decomposed) == "é" * NAME_CHARACTERS_MAX


@pytest.mark.parametrize("value", [None, 7, b"bytes", ["list"], 1.5])
def test_anything_but_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_topic_name(value)
    assert caught.value.details() == {"field": "topic name", "value": repr(value), "rule": "it must be text"}


def test_empty_name_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_group_name("")
    assert caught.value.details() == {
        "field": "group name",
        "value": "empty",
        "rule": f"it must have 1 to {NAME_CHARACTERS_MAX} characters",
    }


def test_long_name_is_refused_and_shown_cut() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_topic_name("x" * 256)
    assert caught.value.value == f"{'x' * 40!r}… of 256 characters"
    assert caught.value.rule == "it must have 1 to 255 characters"


def test_ids_may_be_longer_than_names() -> None:
    assert check_id("writer id", "x" * ID_CHARACTERS_MAX) == "x" * ID_CHARACTERS_MAX
    with pytest.raises(InvalidInput) as caught:
        check_id("writer id", "x" * (ID_CHARACTERS_MAX + 1))
    assert caught.value.field == "writer id"
    assert caught.value.rule == "it must have 1 to 2048 characters"


@pytest.mark.parametrize("character", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\ud800"])
def test_control_characters_and_separators_are_refused_by_position(character: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_topic_name(f"ab{character}c")
    error = caught.value
    assert error.field == "topic name"
    assert error.value == ascii(f"ab{character}c")
    assert error.rule == f"character 2 ({character!a}) is a control character or separator"
    assert str(error).isprintable()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Orders", "oRDERS"),
        ("É", "e\N{COMBINING ACUTE ACCENT}"),
        ("STRASSE", "straße"),
        ("ΣΑΣ", "σας"),
        ("Å", "\u212b"),
    ],
)
def test_names_that_differ_in_case_or_composition_are_one_topic(one: str, other: str) -> None:
    assert topic_key(one) == topic_key(other)


def test_names_of_different_letters_are_different_topics() -> None:
    assert topic_key("orders") != topic_key("order")
    assert topic_key("ı") != topic_key("i")


@given(st.text(max_size=20))
@settings(deadline=None, max_examples=200)
def test_a_key_is_its_own_key_and_does_not_depend_on_composition(name: str) -> None:
    key = topic_key(name)
    assert topic_key(key) == key
    assert topic_key(unicodedata.normalize("NFD", name)) == key
    assert topic_key(unicodedata.normalize("NFC", name)) == key


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20))
@settings(deadline=None, max_examples=200)
def test_a_checked_name_passes_again_unchanged(name: str) -> None:
    checked = check_topic_name(name)
    assert checked == unicodedata.normalize("NFC", name)
    assert check_topic_name(checked) == checked
    assert checked.encode("utf-8").decode("utf-8") == checked


def test_text_is_composed_as_ids_are_stored() -> None:
    assert composed("e\u0301clair") == "\u00e9clair" == check_id("writer", "e\u0301clair")


# In the wrong order, so that to compose them is to sort them: "above right" comes before "above".
MARKS = "\u0315\u0301"


def test_the_marks_are_all_that_unicode_has() -> None:
    every = [chr(number) for number in range(sys.maxunicode + 1)]
    marks = [ord(each) for each in every if all(map(unicodedata.combining, unicodedata.normalize("NFD", each)))]
    assert _marks().nonzero()[0].tolist() == marks


@pytest.mark.parametrize("mark", [MARKS, "\u0344", "\u0f73", "\u0301"])
def test_what_has_very_many_marks_in_a_row_is_no_name(mark: str) -> None:
    marks = len(unicodedata.normalize("NFD", mark)) // len(mark)
    good, bad = (f"n{mark * 31}"[: 1 + count // marks] for count in (COMBINING_MARKS_MAX, COMBINING_MARKS_MAX + marks))
    assert check_id("writer", good) == composed(good) == unicodedata.normalize("NFC", good)
    assert check_id("writer", composed(good)) == composed(good)
    assert composed(composed(bad)) == composed(bad)
    with pytest.raises(InvalidInput) as caught:
        check_topic_name(bad)
    assert caught.value.details() == {
        "field": "topic name",
        "value": ascii(bad),
        "rule": "it may have at most 30 combining marks in a row",
    }


@pytest.mark.parametrize(
    "text", [MARKS * 1_000_000, f"a{MARKS * 15}" * 100_000, "é" * 1_000_000], ids=["row", "rows", "long"]
)
def test_a_long_text_is_not_composed(text: str) -> None:
    """It would take hours, with the interpreter's lock held."""
    assert composed(text) is text
    assert topic_key(text) == text.casefold()
    with pytest.raises(InvalidInput):
        check_topic_name(text)

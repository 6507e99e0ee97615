"""A message as the fields of a form, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.client.message import Message
from headrace.console.messages.draft import EDITED_BYTES_MAX, Draft


def row(draft: Draft) -> dict[str, Any]:
    found: dict[str, Any] = draft.batch().to_pylist()[0]
    return found


@pytest.mark.parametrize(
    "value", [b"", b"text", "zwei\nZeilen ü".encode(), b"base64:QQ==", bytes(range(256)), b"a\r\nb", None]
)
@pytest.mark.parametrize("key", [None, b"", b"ann", b"\xff"])
def test_a_message_is_published_again_as_it_was(value: bytes | None, key: bytes | None) -> None:
    message = Message(3, 7, 0, value, key=key, producer_id="till", seqno=4)
    written = row(Draft.of(message))
    assert written["value"] == value
    assert written.get("key") == key
    assert set(written) <= {"value", "key"}, "neither its source nor its partition is sent again"


def test_attributes_that_a_line_cannot_say_are_kept() -> None:
    attributes = {"kind": b"sale", "raw": b"\x00", "two": b"a\nb", "blank": b" x", "a=b": b"1", "none": None, "": b"e"}
    draft = Draft.of(Message(0, 0, 0, b"", attributes=attributes))
    assert draft.attributes == "kind=sale\nraw=base64:AA==\ntwo=base64:YQpi\nblank=base64:IHg="
    assert dict(row(draft)["attributes"]) == attributes
    edited = replace(draft, attributes="kind=refund")
    assert dict(row(edited)["attributes"]) == {"kind": b"refund", "a=b": b"1", "none": None, "": b"e"}


def test_what_cannot_be_edited_is_published_as_it_is() -> None:
    large = b"x" * (EDITED_BYTES_MAX + 1)
    draft = Draft.of(Message(0, 0, 0, large))
    assert (draft.value, row(draft)["value"]) == ("", large)
    packed = Draft.of(Message(0, 0, 0, b"\x1f\x8b?", codec="gzip"))
    assert row(packed) == {"value": b"\x1f\x8b?", "codec": "gzip"}


@pytest.mark.parametrize(
    ("draft", "problem"),
    [
        (Draft(value="base64:?"), "Value: what follows base64: is not base64"),
        (Draft(key="base64:A"), "Key: what follows base64:"),
        (Draft(attributes="kind"), "Attributes: write 'kind' as NAME=VALUE"),
        (Draft(attributes="kind=base64:A"), "Attribute kind: what follows"),
    ],
)
def test_what_is_wrong_is_named(draft: Draft, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("?", r"\?")):
        draft.batch()

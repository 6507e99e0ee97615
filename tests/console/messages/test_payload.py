"""Values as text, whatever they are; and as files."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc

import pyarrow.parquet as pq
import pytest

from headrace.client.message import Message
from headrace.console.messages import payload
from headrace.console.messages.download import FORMATS, encode


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (b"", ""),
        (b"one\n two", "one two"),
        (b"\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb\ufeff".encode(), r"a\u202eb\ufeff"),
        (b"\xff\x00", "0xff00"),
        (b"\x00", "0x00"),
        (b"\xff" * 100, "0x" + "ff" * 60 + "…"),
        (b"x" * 1000, "x" * 240 + "…"),
        ("ü".encode() * 600, "ü" * 240 + "…"),
    ],
)
def test_previews(value: bytes | None, shown: str) -> None:
    assert payload.preview(value) == shown


def test_the_best_form_is_first() -> None:
    assert list(payload.forms(b'{"a": [1]}')) == ["JSON", "Text", "Hex"]
    assert payload.forms(b'{"a": [1]}')["JSON"] == '{\n  "a": [\n    1\n  ]\n}'
    assert list(payload.forms(b"17")) == ["Text", "Hex"]
    assert list(payload.forms(b"{broken")) == ["Text", "Hex"]
    assert list(payload.forms(b"[" * 100_000)) == ["Text", "Hex"]
    assert list(payload.forms(bytes(range(256)))) == ["Hex"]
    assert payload.forms(b"")["Hex"] == ""


def test_huge_values_are_cut() -> None:
    text = payload.forms(b"x" * 5_000_000)["Text"]
    assert len(text) < payload.SHOWN_BYTES + 100 and text.endswith("to see all of it")
    many = payload.forms(json.dumps(list(range(100_000))).encode())["JSON"]
    assert len(many) < payload.SHOWN_BYTES + 100
    assert payload.as_hex(bytes(70_000)).endswith("… 4,464 more bytes")


MESSAGES = [
    Message(0, 1, 1_700_000_000_000_000, b'{"a": 1}', b"k", {"kind": b"sale"}, producer_id="p", seqno=3),
    Message(1, 2, 1_700_000_000_000_001, b"\xff\xfe"),
]


def test_downloads() -> None:
    assert set(FORMATS) == {"jsonl", "csv", "parquet"}
    first, second = (json.loads(line) for line in encode(MESSAGES, "jsonl").splitlines())
    assert (first["value"], first["attributes"], first["seqno"]) == ('{"a": 1}', {"kind": "sale"}, 3)
    assert (second["value"], second["key"]) == ("base64://4=", None)
    rows = list(csv.DictReader(io.StringIO(encode(MESSAGES, "csv").decode())))
    assert [row["offset"] for row in rows] == ["1", "2"]
    table = pq.read_table(io.BytesIO(encode(MESSAGES, "parquet")))
    assert table.column("value").to_pylist() == [b'{"a": 1}', b"\xff\xfe"]
    assert pq.read_table(io.BytesIO(encode([], "parquet"))).num_rows == 0


def test_json_that_is_nested_deeply_costs_no_more_than_is_shown() -> None:
    depth = 600
    value = b"[" * depth + b"1," * 400_000 + b"1" + b"]" * depth
    tracemalloc.start()
    shown = payload.forms(value)["JSON"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "cut" in shown[-60:]
    # All of it would be 480 MB of spaces.
    assert peak < 30 << 20


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (b"=HYPERLINK(1)", "'=HYPERLINK(1)"),
        (b"@SUM(A1)", "'@SUM(A1)"),
        (b"-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
        (b"\t=1", "'\t=1"),
        (b"-12.5", "-12.5"),
        (b"+3e-4", "+3e-4"),
        (b"a=b", "a=b"),
    ],
)
def test_a_cell_of_csv_is_never_a_formula(value: bytes, cell: str) -> None:
    message = Message(0, 0, 0, value, key=value, attributes={"a": value}, producer_id=value.decode())
    row = next(csv.DictReader(io.StringIO(encode([message], "csv").decode(), newline="")))
    assert (row["key"], row["value"], row["producer_id"]) == (cell, cell, cell)
    assert json.loads(row["attributes"]) == {"a": value.decode()}
    assert json.loads(encode([message], "jsonl"))["value"] == value.decode()

"""Logical types of Avro as columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Context, Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from tests.core.values.avro.test_schema import decimal, fixed, logical
from tests.core.values.test_growth import record

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
DAY_US = 86_400_000_000


def written(kind: Any, *values: Any) -> list[bytes]:
    """Values of one field in Avro's encoding, as they are stored."""
    schema = fastavro.parse_schema(record(("a", kind)))
    found = []
    for value in values:
        target = BytesIO()
        fastavro.schemaless_writer(target, schema, {"a": value})
        found.append(target.getvalue())
    return found


def column(kind: Any, *values: bytes) -> tuple[list[Any], list[str | None]]:
    rows = ValueParser(parse_value_schema(record(("a", kind)))).parse(pa.array(values, pa.binary()))
    rows.validate(full=True)
    return rows["a"].to_pylist(), rows["value_error"].to_pylist()


@pytest.mark.parametrize(
    ("kind", "stored", "seen"),
    [
        (logical("long", "timestamp-millis"), AT_MS, AT),
        (logical("long", "timestamp-micros"), AT_MS * 1000 + 9, AT.replace(microsecond=678009)),
        (logical("long", "local-timestamp-millis"), AT_MS, AT.replace(tzinfo=None)),
        (logical("long", "local-timestamp-micros"), AT_MS * 1000, AT.replace(tzinfo=None)),
        (logical("int", "date"), -719_162, date(1, 1, 1)),
        (logical("int", "time-millis"), 86_399_999, DAY_US - 1000),
        (logical("long", "time-micros"), DAY_US - 1, DAY_US - 1),
        (fixed(3), b"abc", b"abc"),
        ({"type": "map", "values": "long"}, {"a": 1, "": -2}, [("a", 1), ("", -2)]),
        ({"type": "map", "values": ["null", {"type": "array", "items": "string"}]}, {"a": None, "b": ["x"]},
         [("a", None), ("b", ["x"])]),
        ({"type": "map", "values": "long"}, {}, []),
    ],
)  # fmt: skip
def test_values(kind: Any, stored: Any, seen: Any) -> None:
    plain = kind["type"] if "logicalType" in kind else kind
    assert column(kind, *written(plain, stored)) == ([seen], [None])
    optional = ["null", kind]
    assert column(optional, *written(["null", plain], stored, None)) == ([seen, None], [None, None])


def test_a_key_that_occurs_twice() -> None:
    twice = b"\x04" + b"\x02a\x02" + b"\x02a\x04" + b"\0"
    assert column({"type": "map", "values": "long"}, twice) == ([[("a", 2)]], [None])


def test_uuids() -> None:
    given = UUID("12345678-9abc-def0-1234-56789abcdef0")
    assert column(fixed(16, logicalType="uuid"), given.bytes) == ([str(given)], [None])
    assert column(["null", fixed(16, logicalType="uuid")], b"\0") == ([None], [None])


NUMBERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**17, -(10**17), 10**38 - 1, -(10**38) + 1]


@pytest.mark.parametrize("size", [None, 16, 20])
def test_decimals(size: int | None) -> None:
    kind = decimal(38, scale=3) if size is None else fixed(size, logicalType="decimal", precision=38, scale=3)
    plain = "bytes" if size is None else fixed(size)
    stored = [number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True) for number in NUMBERS]
    found, errors = column(kind, *written(plain, *stored))
    assert errors == [None] * len(NUMBERS)
    assert found == [Decimal(number).scaleb(-3, Context(prec=40)) for number in NUMBERS]


@pytest.mark.parametrize(
    ("kind", "plain", "stored", "told"),
    [
        (logical("long", "timestamp-millis"), "long", 1 << 62, "a date-time is not in the years 1 to 9999"),
        (logical("long", "timestamp-micros"), "long", -(1 << 62), "a date-time is not in the years 1 to 9999"),
        (logical("long", "local-timestamp-micros"), "long", 1 << 62, "a local-date-time is not in the years"),
        (logical("int", "date"), "int", 2_932_897, "a date is not in the years 1 to 9999"),
        (logical("int", "time-millis"), "int", -1, "a time is not of one day"),
        (logical("long", "time-micros"), "long", DAY_US, "a time is not of one day"),
        (decimal(4, scale=2), "bytes", (10000).to_bytes(2, "big"), "does not fit in precision"),
        (decimal(4), "bytes", b"", "a decimal has no bytes"),
        (decimal(38), "bytes", b"\x7f" + b"\xff" * 16, "a decimal has too many digits"),
    ],
)
def test_what_no_column_can_hold_is_the_fault_of_its_row_alone(kind: Any, plain: Any, stored: Any, told: str) -> None:
    one = b"\x01" if plain == "bytes" else 1
    found, errors = column(kind, *written(plain, one, stored, one))
    assert (found[0], found[1], found[2]) == (found[0], None, found[0]) and found[0] is not None
    assert [errors[0], errors[2]] == [None, None] and told in (errors[1] or "")

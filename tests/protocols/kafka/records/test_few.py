"""A few records that are read one by one are read as whole columns are: both accept the same, and find the same."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocols.kafka.records import decode
from headrace.protocols.kafka.records.decode import _checked, _whole_columns
from headrace.protocols.kafka.records.few import FEW_RECORDS, read_few
from headrace.protocols.kafka.records.header import LOG_APPEND_TIME, BadRecords
from tests.protocols.kafka.records.by_hand import record
from tests.protocols.kafka.records.fuzz import seeds, spoiled
from tests.protocols.kafka.records.test_codec import BYTES_MAX, NOW_MS, Record, built, records

WITH_ALL = built([(NOW_MS, b"key", b"value", [("name", b"header")]), (NOW_MS, None, None, [])])
GOOD = b"\x0e\x00\x00\x00\x01\x02x\x00"


def one_by_one(*batches: bytes) -> pa.RecordBatch | None:
    checked = [_checked(memoryview(data), BYTES_MAX) for data in batches]
    return read_few((each.header, each.records) for each in checked)


def by_columns(*batches: bytes) -> pa.RecordBatch:
    return _whole_columns([_checked(memoryview(data), BYTES_MAX) for data in batches])


@settings(max_examples=60, deadline=None)
@given(st.lists(records, min_size=1, max_size=3))
def test_what_a_client_encodes_is_read_alike(many: list[list[Record]]) -> None:
    # Clients send what was created within minutes, not within centuries.
    batches = [built([(NOW_MS + row[0] % 10**6, *row[1:]) for row in rows]) for rows in many]
    few = one_by_one(*batches)
    assert few is not None
    few.validate(full=True)
    assert few.equals(by_columns(*batches), check_metadata=True)


def test_spoiled_batches_are_read_alike_or_left_to_be_judged() -> None:
    random, start = Random(17), seeds()
    read = 0
    for _ in range(3000):
        data = spoiled(random.choice(start), random)
        try:
            few = one_by_one(data)
        except BadRecords:
            # Its head is wrong, which both look at first.
            continue
        if few is not None:
            assert few.equals(by_columns(data), check_metadata=True)
            read += 1
    assert read > 100


@pytest.mark.parametrize(
    ("data", "times"),
    [
        (record(GOOD, base_timestamp=-1), None),
        (record(GOOD, base_timestamp=NOW_MS), [NOW_MS * 1000]),
        (record(GOOD, attributes=LOG_APPEND_TIME, base_timestamp=NOW_MS), [0]),
    ],
    ids=["no time", "the client's", "the broker's"],
)
def test_times(data: bytes, times: list[int] | None) -> None:
    few = one_by_one(data)
    assert few is not None and few.equals(by_columns(data), check_metadata=True)
    names = few.schema.names
    assert (few.column("created_at").cast(pa.int64()).to_pylist() if "created_at" in names else None) == times


@pytest.mark.parametrize(
    "data",
    [
        record(b"\x28\x00" + b"\xff" * 19),
        record(GOOD[:3] + b"\x02" + GOOD[4:]),
        record(GOOD + b"\x00"),
        record(GOOD[:4] + b"\x05" + GOOD[5:]),
        record(b"\x12\x00\x00\x00\x01\x02x\x02\x01\x01"),
        record(b"\x14\x00\x00\x00\x01\x02x\x02\x02\xff\x01"),
        record(b"\x0e\x00\x00\x00\x01\x02x\x01"),
        record(GOOD, base_timestamp=1 << 62),
    ],
    ids=["number", "offset", "bytes behind", "key length", "no name", "not UTF-8", "header count", "time"],
)
def test_what_is_wrong_is_left_to_be_judged(data: bytes) -> None:
    assert one_by_one(data) is None
    with pytest.raises(BadRecords):
        decode.decode(memoryview(data), BYTES_MAX)


def test_many_headers_are_left_to_whole_columns() -> None:
    data = built([(NOW_MS, None, b"x", [("h", b"1")] * (FEW_RECORDS + 1))])
    assert one_by_one(data) is None
    assert decode.decode(memoryview(data), BYTES_MAX).columns.equals(by_columns(data))


def test_pandas_is_not_imported_for_it() -> None:
    """It takes seconds on a busy machine, and would stop the event loop for as long."""
    program = (
        "import sys; from headrace.protocols.kafka.records.decode import decode;"
        f"decode(memoryview(bytes.fromhex({WITH_ALL.hex()!r})), 1 << 20); sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

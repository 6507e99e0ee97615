"""The parts of a load by themselves: what messages say, what verification finds, what a histogram shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.load.histogram import LatencyHistogram
from headrace.load.load import Load
from headrace.load.payload import Payload, have_heads, heads_of
from headrace.load.verification import Findings, Verification, findings

LOAD = Load(messages=10, producers=3, partitions=2)


def read_batch(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    """Messages as they are read, by partition, producer and number."""
    values = [np.array([producer, number, 0], np.int64).tobytes() for _, producer, number in rows]
    partitions = pa.array([partition for partition, _, _ in rows], pa.int32())
    return pa.record_batch({"partition": partitions, "value": pa.array(values, pa.binary())})


def found(path: Path, *batches: pa.RecordBatch) -> Findings:
    verification = Verification(LOAD)
    for batch in batches:
        verification.enter(batch)
    verification.save(path)
    return findings([path], LOAD.messages, verification.out_of_order, verification.foreign)


EVERYTHING = [(number % 2, producer, number) for producer, share in enumerate((4, 3, 3)) for number in range(share)]


def test_messages_say_who_which_and_when() -> None:
    payload = Payload(producer=2, value_bytes=30, keys=7, rows=100)
    batch = payload.batch(first=1_000, rows=50, now_ns=123)
    heads = heads_of(batch.column("value").slice(10, 20))
    assert set(heads.producers.tolist()) == {2} and set(heads.sent_ns.tolist()) == {123}
    assert heads.numbers.tolist() == list(range(1_010, 1_030))
    assert {len(value) for value in batch.column("value").to_pylist()} == {30}
    assert batch.column("key").to_pylist() == [b"%012d" % (number % 7) for number in range(1_000, 1_050)]


def test_no_keys() -> None:
    assert Payload(0, 24, 0, 1).batch(0, 1, 0).schema.names == ["value"]


def test_short_values_are_of_nobody() -> None:
    assert have_heads(pa.array([b"x" * 24, b"x" * 23, None])).tolist() == [True, False, False]


def test_shares_are_all_messages() -> None:
    assert [LOAD.share(producer) for producer in range(3)] == [4, 3, 3]


def test_everything_once_and_in_order(tmp_path: Path) -> None:
    assert found(tmp_path / "a.npy", read_batch(*EVERYTHING)) == Findings()
    assert found(tmp_path / "a.npy", *(read_batch(row) for row in EVERYTHING)).are_good


def test_counts_of_a_group_add_up(tmp_path: Path) -> None:
    for name, partition in (("a.npy", 0), ("b.npy", 1)):
        verification = Verification(LOAD)
        verification.enter(read_batch(*(row for row in EVERYTHING if row[0] == partition)))
        assert verification.arrived == sum(row[0] == partition for row in EVERYTHING)
        verification.save(tmp_path / name)
    assert findings([tmp_path / "a.npy", tmp_path / "b.npy"], LOAD.messages, 0, 0).are_good


def test_what_is_wrong_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    assert found(path, read_batch(*EVERYTHING[:-2])) == Findings(missing=2)
    again = (1, *EVERYTHING[-1][1:])
    assert found(path, read_batch(*EVERYTHING), read_batch(again)) == Findings(doubled=1)
    assert found(path, read_batch(*EVERYTHING), read_batch(EVERYTHING[-1])) == Findings(doubled=1, out_of_order=1)
    swapped = [EVERYTHING[2], EVERYTHING[1], EVERYTHING[0], *EVERYTHING[3:]]
    assert found(path, read_batch(*swapped)) == Findings(out_of_order=1)
    assert found(path, *(read_batch(row) for row in swapped)) == Findings(out_of_order=1)


@pytest.mark.parametrize("head", [(3, 0), (-1, 0), (0, 4), (0, -1)])
def test_messages_of_others_are_counted_apart(tmp_path: Path, head: tuple[int, int]) -> None:
    assert found(tmp_path / "a.npy", read_batch(*EVERYTHING), read_batch((0, *head))) == Findings(foreign=1)
    # In one batch with those of the load, which count all the same.
    mixed = [*EVERYTHING[:5], (0, *head), *EVERYTHING[5:]]
    assert found(tmp_path / "a.npy", read_batch(*mixed)) == Findings(foreign=1)


def test_short_messages_of_others_hide_nothing_of_the_load(tmp_path: Path) -> None:
    partitions, values = pa.array([1, 0], pa.int32()), pa.array([b"short", None], pa.binary())
    short = pa.record_batch({"partition": partitions, "value": values})
    assert found(tmp_path / "a.npy", pa.concat_batches([short, read_batch(*EVERYTHING)])) == Findings(foreign=2)
    assert found(tmp_path / "a.npy", read_batch(*EVERYTHING), short) == Findings(foreign=2)


def test_percentiles_are_true_to_two_percent() -> None:
    seconds = np.random.default_rng(1).lognormal(-6, 1.5, 100_000)
    first, second = LatencyHistogram(), LatencyHistogram()
    first.add(seconds[:30_000])
    second.add(seconds[30_000:])
    first.merge(LatencyHistogram(second.counts()))
    assert first.total == 100_000
    for percent in (1, 50, 99, 99.9):
        assert first.percentile(percent) == pytest.approx(np.percentile(seconds, percent), rel=0.02)


def test_histogram_of_nothing_and_of_extremes() -> None:
    empty = LatencyHistogram()
    assert empty.percentile(50) == 0.0 and empty.bars() == []
    empty.add(np.array([0.0, -1.0, 1e9]))
    assert [(label, count) for label, count, _ in empty.bars() if count] == [("<= 0.1 ms", 2), ("> 10000 ms", 1)]


def test_bars_are_as_long_as_there_are_many() -> None:
    histogram = LatencyHistogram()
    histogram.add(np.repeat([0.0015, 0.0040], [400, 100]))
    assert [(label, count, len(bar)) for label, count, bar in histogram.bars()] == [
        ("<= 2 ms", 400, 40),
        ("<= 5 ms", 100, 10),
    ]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"messages": 0}, "messages"),
        ({"value_bytes": 23}, "value_bytes"),
        ({"keys": -1}, "keys"),
        ({"batch": 0}, "batch"),
        ({"batch": 1 << 20, "value_bytes": 1000}, "batch"),
        ({"producers": 0}, "producers"),
        ({"producers": 20, "messages": 19}, "messages"),
        ({"consumers": -1}, "consumers"),
        ({"consumers": 33, "groups": 2}, "producers and consumers"),
        ({"groups": 0}, "groups"),
        ({"partitions": 0}, "partitions"),
        ({"rate": -1.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"linger_seconds": -0.1}, "linger_seconds"),
        ({"timeout_seconds": 0.0}, "timeout_seconds"),
    ],
)
def test_numbers_out_of_bounds_are_refused_by_name(changed: dict[str, int | float], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Load(**changed).check()  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_slow_rate_gives_more_patience() -> None:
    assert Load().pause_seconds == 0
    assert Load(batch=1_000, producers=2, rate=10.0).pause_seconds == 200

"""Which rows repeat: the kernel beside a model that looks at one row after another."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.core.hashes.columns import Int64s
from headrace.spark.pipeline.frame import dedup_window as repeats
from headrace.spark.pipeline.frame.dedup_window import NOTHING, Bools, Rows, first_of_each, remembered

Row = tuple[int, int, int]
WINDOW_US = 10


def rows_of(rows: list[Row]) -> Rows:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Rows(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def model(rows: list[Row], known: list[Row]) -> list[bool]:
    kept, keep = list(known), [False] * len(rows)
    for place in sorted(range(len(rows)), key=lambda place: rows[place][2]):
        first, second, time = rows[place]
        if not any(one[:2] == (first, second) and abs(one[2] - time) < WINDOW_US for one in kept):
            kept.append(rows[place])
            keep[place] = True
    return keep


@pytest.mark.parametrize("seed", range(300))
def test_the_kernel_decides_as_the_model(seed: int) -> None:
    chance = random.Random(seed)

    def some(count: int) -> list[Row]:
        return [(chance.randint(0, 2), chance.randint(0, 1), chance.randint(0, 50)) for _ in range(count)]

    rows, known = some(chance.randint(0, 20)), some(chance.randint(0, 5))
    assert first_of_each(rows_of(rows), rows_of(known), WINDOW_US).tolist() == model(rows, known)


def test_a_repeat_does_not_renew_the_window() -> None:
    rows = rows_of([(1, 1, 0), (1, 1, 9), (1, 1, 10), (1, 1, 19), (1, 1, 20)])
    assert first_of_each(rows, NOTHING, WINDOW_US).tolist() == [True, False, True, False, True]


def test_all_rows_are_looked_at_once_however_many_windows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, near = [], repeats._near

    def counted(kept: Bools, group: Int64s, time_us: Int64s, window_us: int) -> Bools:
        looks.append(len(kept))
        return near(kept, group, time_us, window_us)

    monkeypatch.setattr(repeats, "_near", counted)
    rows = rows_of([(1, 1, time) for time in range(5 * WINDOW_US * 100)])
    assert first_of_each(rows, NOTHING, WINDOW_US).sum() == 500 and looks == [5000]


def test_one_hash_alone_makes_no_repeat() -> None:
    assert first_of_each(rows_of([(1, 1, 0), (1, 2, 0), (2, 1, 0)]), NOTHING, WINDOW_US).all()


def test_remembered_is_a_window_before_the_oldest_row() -> None:
    known, kept = rows_of([(1, 1, 90), (2, 2, 91)]), rows_of([(3, 3, 100), (4, 4, 500)])
    assert remembered(known, kept, 100, WINDOW_US).first.tolist() == [2, 3, 4]


def test_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "ROWS_MAX", 2)
    kept = rows_of([(1, 1, 105), (2, 2, 101), (3, 3, 103)])
    assert remembered(NOTHING, kept, 101, WINDOW_US).first.tolist() == [1, 3]


def test_rows_survive_the_state_store() -> None:
    rows = rows_of([(-(2**63), 2**63 - 1, 5), (0, 1, 2)])
    again = Rows.from_bytes(rows.to_bytes())
    assert (again.first.tolist(), again.second.tolist(), again.time_us.tolist()) == (
        [-(2**63), 0], [2**63 - 1, 1], [5, 2],
    )  # fmt: skip
    assert len(Rows.from_bytes(NOTHING.to_bytes())) == 0

"""The source table: seqnos, links and their expiry, forgetting, snapshots; and the sources of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.publish.sources import (
    NO_DIGEST,
    NO_LINK,
    NO_SOURCE,
    NOTHING_WRITTEN,
    SNAPSHOT_SCHEMA,
    RowSources,
    Source,
    SourceTable,
    SourceUpdates,
    links_of,
    row_sources,
    updates_of,
)
from headrace.core.reports.descriptions import SourceDescription
from tests.core.builders import DAY_US, LINK_IDLE_US, NOW_US, publish_batch


def updates(*changes: tuple[Source, int, int]) -> SourceUpdates:
    """Sources with the seqno and the link each gets."""
    return SourceUpdates(
        [source for source, _, _ in changes],
        np.array([seqno for _, seqno, _ in changes], np.int64),
        np.array([link for _, _, link in changes], np.int32),
        np.array([100 + seqno % 1000 for _, seqno, _ in changes], np.int64),
    )


def table_of(*changes: tuple[Source, int, int], now_us: int = NOW_US) -> SourceTable:
    table = SourceTable()
    table.apply(updates(*changes), now_us)
    return table


def looked_up(table: SourceTable, source: Source, now_us: int = NOW_US) -> tuple[int, int]:
    seqno, link = table.lookup([source], now_us)
    return int(seqno[0]), int(link[0])


A, B, C = ("a", ""), ("b", ""), ("a", "g")


def test_unknown_source_has_nothing_written_and_no_link() -> None:
    table = table_of((A, 5, 2))
    assert table.last_seqno(B) is None
    assert looked_up(table, B) == (NOTHING_WRITTEN, NO_LINK)
    assert looked_up(SourceTable(), A) == (NOTHING_WRITTEN, NO_LINK)


def test_groups_of_one_producer_are_sources_of_their_own() -> None:
    table = table_of((A, 5, 2), (C, 7, 3))
    assert (table.last_seqno(A), table.last_seqno(C)) == (5, 7)
    assert (looked_up(table, A), looked_up(table, C)) == ((5, 2), (7, 3))


def test_source_that_wrote_without_seqno_has_a_link_but_no_last_seqno() -> None:
    table = table_of((A, NOTHING_WRITTEN, 1))
    assert table.last_seqno(A) is None
    assert looked_up(table, A) == (NOTHING_WRITTEN, 1)


def test_seqno_zero_counts_as_written() -> None:
    assert table_of((A, 0, 1)).last_seqno(A) == 0


def test_seqno_never_falls_and_a_living_link_never_moves() -> None:
    table = table_of((A, 5, 2))
    table.apply(updates((A, 3, 0), (B, 1, 1)), NOW_US + 1)
    assert (looked_up(table, A), looked_up(table, B)) == ((5, 2), (1, 1))


def test_empty_update_changes_nothing() -> None:
    table = table_of((A, 5, 2))
    before = table.snapshot()
    table.apply(updates(), NOW_US + 1)
    assert table.snapshot().equals(before)


def test_link_lives_until_fourteen_idle_days_are_full() -> None:
    table = table_of((A, 5, 2))
    assert looked_up(table, A, NOW_US + LINK_IDLE_US - 1) == (5, 2)
    assert looked_up(table, A, NOW_US + LINK_IDLE_US) == (5, NO_LINK)
    assert LINK_IDLE_US == 14 * DAY_US


def test_use_renews_the_link_even_by_rows_that_do_not_need_it() -> None:
    table = table_of((A, 5, 2))
    table.apply(updates((A, 6, NO_LINK)), NOW_US + LINK_IDLE_US - 1)
    assert looked_up(table, A, NOW_US + LINK_IDLE_US + 1) == (6, 2)


@pytest.mark.parametrize("new_link", [0, NO_LINK])
def test_dead_link_is_replaced_on_the_next_use(new_link: int) -> None:
    table = table_of((A, 5, 2))
    table.apply(updates((A, 6, new_link)), NOW_US + LINK_IDLE_US)
    assert looked_up(table, A, NOW_US + LINK_IDLE_US) == (6, new_link)


def test_expiry_forgets_idle_links_and_keeps_seqnos() -> None:
    table = table_of((A, 5, 2), (B, 6, NO_LINK))
    table.apply(updates((C, 7, 3)), NOW_US + 1)
    assert table.expire_links(NOW_US + LINK_IDLE_US - 1) == 0
    assert table.expire_links(NOW_US + LINK_IDLE_US) == 1
    assert table.expire_links(NOW_US + LINK_IDLE_US) == 0
    assert [row["link"] for row in table.snapshot().to_pylist()] == [NO_LINK, NO_LINK, 3]
    assert table.last_seqno(A) == 5


def test_forgetting_drops_the_longest_idle_without_link_and_only_the_excess() -> None:
    table = SourceTable()
    for age, (name, link) in enumerate(
        [("old-linked", 1), ("oldest", NO_LINK), ("older", NO_LINK), ("young", NO_LINK)]
    ):
        table.apply(updates(((name, ""), age, link)), NOW_US + age)
    assert table.forget_idle(4) == 0
    assert table.forget_idle(3) == 1
    assert [row["producer_id"] for row in table.snapshot().to_pylist()] == ["old-linked", "older", "young"]
    assert table.forget_idle(0) == 2
    assert [row["producer_id"] for row in table.snapshot().to_pylist()] == ["old-linked"]
    assert len(table) == 1
    assert looked_up(table, ("old-linked", "")) == (0, 1)
    assert table.last_seqno(("young", "")) is None


def test_table_continues_after_forgetting() -> None:
    table = table_of((A, 5, NO_LINK), (B, 6, 1))
    assert table.forget_idle(1) == 1
    many: list[tuple[Source, int, int]] = [((f"p{number}", ""), number, number % 7) for number in range(100)]
    table.apply(updates(*many), NOW_US)
    assert len(table) == 101
    assert looked_up(table, B) == (6, 1)
    assert [looked_up(table, source) for source, _, _ in many] == [(seqno, link) for _, seqno, link in many]


def test_copy_is_independent() -> None:
    table = table_of((A, 5, 2))
    twin = table.copy()
    twin.apply(updates((A, 9, 2), (B, 1, 0)), NOW_US + 1)
    assert (table.last_seqno(A), table.last_seqno(B), len(table)) == (5, None, 1)
    assert (twin.last_seqno(A), twin.last_seqno(B), len(twin)) == (9, 1, 2)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.tuples(st.text(min_size=1, max_size=3), st.text(max_size=2)),
                st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 9_999)),
                max_size=30,
            ),
            st.integers(0, 2 * LINK_IDLE_US),
        ),
        max_size=4,
    )
)
@settings(deadline=None, max_examples=60)
def test_restored_table_is_the_one_that_gave_the_snapshot(
    steps: list[tuple[dict[Source, tuple[int, int]], int]],
) -> None:
    table = SourceTable()
    now_us = NOW_US
    for changes, later_us in steps:
        now_us += later_us
        table.apply(updates(*((source, seqno, link) for source, (seqno, link) in changes.items())), now_us)
    snapshot = table.snapshot()
    assert snapshot.schema.equals(SNAPSHOT_SCHEMA)
    restored = SourceTable.restore(snapshot)
    assert restored.snapshot().equals(snapshot)
    assert len(restored) == len(table)
    late = updates((A, 3, 1), (("new", "one"), 0, 4))
    for each in (table, restored):
        each.apply(late, now_us + 1)
    assert restored.snapshot().equals(table.snapshot())


def test_batch_without_producers_has_no_sources() -> None:
    assert row_sources(publish_batch(value=[b"x"])) is None


def test_rows_with_null_or_empty_producer_have_no_source() -> None:
    rows = row_sources(publish_batch(value=[b""] * 5, producer_id=["b", None, "", "a", "b"]))
    assert rows is not None
    assert list(rows.sources) == [B, A]
    assert rows.code.tolist() == [0, NO_SOURCE, NO_SOURCE, 1, 0]


def test_no_source_is_left_if_every_producer_is_empty() -> None:
    for groups in ({}, {"message_group_id": [None, ""]}):
        rows = row_sources(publish_batch(value=[b""] * 2, producer_id=["", None], **groups))
        assert rows is not None
        assert list(rows.sources) == []
        assert rows.code.tolist() == [NO_SOURCE, NO_SOURCE]


IDS = st.sampled_from([None, "", "a", "b", "cc", "ü"])


@given(st.lists(st.tuples(IDS, IDS, st.sampled_from([1, 1, 2, 9])), max_size=30), st.booleans(), st.integers(0, 2))
@settings(deadline=None, max_examples=150)
def test_sources_come_in_the_order_of_their_first_row(
    runs: list[tuple[str | None, str | None, int]], grouped: bool, skipped: int
) -> None:
    pairs = [(producer, group) for producer, group, rows in runs for _ in range(rows)]
    columns = {"value": [b""] * len(pairs), "producer_id": [producer for producer, _ in pairs]}
    if grouped:
        columns["message_group_id"] = [group for _, group in pairs]
    batch = publish_batch(**columns).slice(min(skipped, len(pairs)))
    rows = row_sources(batch)
    assert rows is not None
    expected = [
        (producer, (group or "") if grouped else "") if producer else None
        for producer, group in pairs[min(skipped, len(pairs)) :]
    ]
    found = [None if code == NO_SOURCE else rows.sources[code] for code in rows.code.tolist()]
    assert found == expected
    assert list(rows.sources) == list(dict.fromkeys(source for source in expected if source))


def test_updates_hold_each_written_source_once_in_stored_order_with_its_highest_seqno() -> None:
    rows = RowSources(np.array([2, 0, NO_SOURCE, 2, 0]), [A, B, C])
    result = updates_of(
        rows,
        np.array([7, 5, NOTHING_WRITTEN, 3, NOTHING_WRITTEN]),
        np.array([0, 1, 1, 2, 3], np.int32),
        np.array([True, False, True, True, False]),
        lambda rows: rows + 100,
    )
    assert list(result.sources) == [C, A]
    assert result.digest.tolist() == [100, 101]
    assert result.seqno.tolist() == [7, 5]
    assert result.link.tolist() == [2, NO_LINK]


def test_link_goes_to_the_row_of_the_lowest_seqno_and_then_to_the_lowest_partition() -> None:
    rows = RowSources(np.array([0, 0, 0, 1, 1, NO_SOURCE]), [A, B, C])
    seqno = np.array([9, 4, 4, NOTHING_WRITTEN, 0, NOTHING_WRITTEN])
    partition = np.array([0, 3, 2, 5, 1, 0], np.int32)
    assert links_of(rows, seqno, partition, np.ones(6, bool)).tolist() == [2, 5, NO_LINK]
    assert links_of(rows, seqno, partition, np.zeros(6, bool)).tolist() == [NO_LINK] * 3


def test_snapshot_of_an_empty_table_is_an_empty_batch() -> None:
    snapshot = SourceTable().snapshot()
    assert isinstance(snapshot, pa.RecordBatch)
    assert (snapshot.num_rows, len(SourceTable.restore(snapshot))) == (0, 0)


def test_a_source_that_is_reset_has_no_seqno_and_keeps_its_link() -> None:
    table = table_of((("a", ""), 7, 1), (("b", ""), 8, 2))
    table.reset(("a", ""))
    table.reset(("unknown", ""))
    assert (table.last_seqno(("a", "")), table.last_seqno(("b", ""))) == (None, 8)
    assert ("a", "") in table
    assert ("unknown", "") not in table
    assert table.lookup([("a", "")], NOW_US)[1].tolist() == [1]
    assert len(table) == 2


def test_what_another_server_stored_is_taken_as_it_is() -> None:
    table = table_of((("a", ""), 7, 1))
    table.put(updates((("a", ""), 3, 1), (("new", "g"), NOTHING_WRITTEN, 0)), NOW_US + 1)
    assert (table.last_seqno(("a", "")), table.last_seqno(("new", "g"))) == (3, None)


def test_sources_are_described_newest_first() -> None:
    table = table_of((("a", ""), 7, 1), (("b", "x"), NOTHING_WRITTEN, NO_LINK))
    table.apply(updates((("b", "y"), 9, 2)), NOW_US + LINK_IDLE_US)
    now_us = NOW_US + LINK_IDLE_US
    newest = SourceDescription("b", "y", 9, 2, now_us)
    others = [SourceDescription("a", "", 7, None, NOW_US), SourceDescription("b", "x", None, None, NOW_US)]
    assert table.described(now_us, None, 10) == [newest, *others]
    assert table.described(NOW_US, "a", 10) == [SourceDescription("a", "", 7, 1, NOW_US)]
    assert table.described(now_us, "b", 1) == [newest]
    assert table.described(now_us, "none", 10) == SourceTable().described(now_us, None, 10) == []


def test_the_digest_is_that_of_the_highest_seqno() -> None:
    table = table_of((A, 5, 2))
    table.apply(updates((A, 3, 2), (B, 1, 0)), NOW_US)
    assert table.digests([A, B, C]).tolist() == [105, 101, NO_DIGEST]
    table.apply(updates((A, 6, 2)), NOW_US)
    assert SourceTable.restore(table.snapshot()).digests([A]).tolist() == [106]
    table.put(updates((A, 2, 2)), NOW_US)
    assert (table.last_seqno(A), table.digests([A]).tolist()) == (2, [102])

"""What is told about groups adds up."""

from __future__ import annotations

from headrace.core.reports.descriptions import GroupDescription, PartitionProgress


def described(*progress: PartitionProgress) -> GroupDescription:
    return GroupDescription("orders", "billing", None, False, "earliest", 0, {}, dict(enumerate(progress)))


def test_lag_is_the_sum_of_messages_and_the_age_of_the_oldest() -> None:
    group = described(
        PartitionProgress(3, 3, 10, 7, 1.5, None),
        PartitionProgress(None, 0, 2, 2, 4.0, "m"),
    )
    assert (group.lag_messages, group.lag_seconds) == (9, 4.0)


def test_a_group_without_partitions_has_no_lag() -> None:
    assert (described().lag_messages, described().lag_seconds) == (0, 0.0)

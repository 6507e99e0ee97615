"""What the coordinator writes to the log."""

from __future__ import annotations

from headrace.protocols.kafka.coordinator.coordinator import shown_members


def test_members_in_the_log_are_quoted_and_few() -> None:
    assert shown_members({"b\nERROR all is lost", "a"}) == r"'a', 'b\nERROR all is lost'"
    many = shown_members([f"{number:03}" + "x" * 5000 for number in range(50)])
    assert len(many) < 3000 and many.endswith("and 30 others")

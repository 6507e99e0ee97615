"""What Kafka's clients say with a commit: where a group stands then, and what they are told."""

from __future__ import annotations

import pytest

from headrace.core.groups.notes import CommitNote, told


@pytest.mark.parametrize(("said", "position"), [(-(1 << 63), 0), (-1, 0), (0, 0), (7, 7), (10, 10), (11, 10)])
def test_a_group_stays_within_its_partition(said: int, position: int) -> None:
    assert CommitNote(said).position(10) == position


@pytest.mark.parametrize(
    ("position", "note", "end", "offset"),
    [
        (4, None, 10, 4),
        (4, CommitNote(4, 1, b"x"), 10, 4),
        (0, CommitNote(-2), 10, -2),
        (10, CommitNote(12), 10, 12),
        (10, CommitNote(12), 11, 12),
        # Messages have come that a client which begins there would skip.
        (10, CommitNote(12), 12, 10),
        (10, CommitNote(12), 20, 10),
    ],
)
def test_a_client_is_told_what_it_said_unless_it_would_skip(
    position: int, note: CommitNote | None, end: int, offset: int
) -> None:
    found = told(position, note, end)
    assert found == (CommitNote(offset) if note is None else note._replace(offset=offset))

"""What clients of Kafka say with commits is bounded: for a group, for a caller and for a topic."""

from __future__ import annotations

import pytest

from headrace.broker import Broker
from headrace.broker.groups import note_room
from headrace.core.errors import InvalidInput
from headrace.core.groups.notes import CommitNote
from headrace.core.limits import COMMIT_NOTES_FREE_BYTES as FREE
from tests.broker.sites import Site

ROOM = 8 * FREE


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_room, "COMMIT_NOTES_BYTES_MAX", ROOM)
    # The store is always asked again.
    monkeypatch.setattr(note_room, "_AGAIN_SECONDS", 0.0)


@pytest.fixture
def broker(site: Site) -> Broker:
    broker = site.open()
    broker.create_topic("orders", partitions=8)
    return broker


def say(broker: Broker, group: str, owner: str, sizes: dict[int, int]) -> None:
    """Commit, as a caller, with so many bytes for each partition."""
    notes = {partition: CommitNote(0, -1, bytes(size)) for partition, size in sizes.items()}
    broker.reader("orders").take_notes(group, notes, owner)
    broker.register_group("orders", group)
    broker.reader("orders").commit_notes(group, dict.fromkeys(sizes, 0), notes, is_back=True)


def test_a_group_has_a_little_whatever_others_do(broker: Broker) -> None:
    for number in range(6):
        say(broker, f"large-{number}", f"caller-{number}", {0: ROOM // 8 + 1})
    with pytest.raises(InvalidInput, match=r"metadata of commits.*12289 bytes in group 'late'.*say less"):
        say(broker, "late", "caller-6", {0: FREE, 1: ROOM // 4 + 1})
    for number in range(20):
        say(broker, "late", "caller-0", dict.fromkeys(range(8), FREE // 8))
        say(broker, f"small-{number}", "caller-0", {0: FREE})


def test_a_caller_has_a_quarter_of_the_room(broker: Broker) -> None:
    say(broker, "one", "greedy", {0: FREE, 1: 1})
    with pytest.raises(InvalidInput):
        say(broker, "two", "greedy", {0: FREE, 1: 1})
    say(broker, "two", "modest", {0: FREE, 1: 1})
    # Of a group that has it already.
    say(broker, "one", "greedy", {0: FREE, 1: 1})
    say(broker, "one", "greedy", {0: FREE - 1, 1: 2})
    with pytest.raises(InvalidInput):
        say(broker, "one", "greedy", {2: FREE})


def test_what_groups_have_is_found_in_the_store(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=8)
    for number in range(7):
        say(broker, f"large-{number}", f"caller-{number}", {0: FREE, 1: 1})
    broker = durable_site.reopen(broker)
    with pytest.raises(InvalidInput):
        say(broker, "late", "caller-7", {0: FREE, 1: 1})
    # What does not grow is accepted.
    say(broker, "large-0", "caller-7", {0: FREE, 1: 1})
    broker.delete_group("orders", "large-1")
    say(broker, "late", "caller-7", {0: FREE, 1: 1})


def test_what_is_forgotten_of_many_groups_is_asked_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_room, "GROUPS_PER_TOPIC", 1)
    for number in range(5):
        say(broker, f"g{number}", "ann", {0: FREE})
    with pytest.raises(InvalidInput):
        say(broker, "g0", "ann", {1: ROOM})

"""What every engine does with a commit of several topics: all of it or nothing, and each key once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection

from headrace.core.errors import CommitConflict, LogFailed, StorageError, TopicDeleted
from headrace.core.groups.group import Group
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.publish.writers import one_time_writer
from headrace.storage.catalog import GroupWrite
from headrace.storage.interface import CatalogChange, Decide, Fences, RepeatedCommit, StoreCommit
from tests.group_writes import put_group
from tests.storage.builders import NOW_US, Place, Topic, commit_of, state_of, values, values_in


def deciding(*batches: Any, lazily: bool = False, keys: tuple[CommitKey, ...] = ()) -> Decide:
    """A commit with a frame for each batch."""

    def decide(state: TopicState, fences: Fences) -> Iterable[Commit]:
        commits = commit_of(batches, state, keys=keys)[0]
        return iter(commits) if lazily else commits

    return decide


def failing(planned: int) -> Decide:
    """A commit whose planning fails after some frames."""

    def fail(state: TopicState, fences: Fences) -> Iterator[Commit]:
        yield from commit_of([values(b"x"), values(b"y")], state)[0][:planned]
        raise ValueError("undecided")

    return fail


def commit_together(
    place: Place,
    decisions: dict[Topic, Decide],
    key: CommitKey | None = None,
    changes: Sequence[CatalogChange] = (),
    store_wide: bool = False,
) -> None:
    topics = {topic.record.id: decide for topic, decide in decisions.items()}
    place.store.commit(StoreCommit(topics, NOW_US, key, changes, store_wide))


class StoreCommitContract:
    """A commit of several topics."""

    @pytest.fixture
    def topics(self, place: Place) -> list[Topic]:
        return [Topic(place, name=name) for name in ("a", "b", "c")]

    @pytest.mark.parametrize("store_wide", [False, True])
    def test_topics_get_theirs_and_others_nothing(self, place: Place, topics: list[Topic], store_wide: bool) -> None:
        a, b, _ = topics
        a.publish(values(b"1"))
        parts = {b: deciding(values(b"3")), a: deciding(values(b"2"), values(b"9", partition=1), lazily=True)}
        commit_together(place, parts, store_wide=store_wide)
        a.publish(values(b"4"))
        for _ in range(2):
            assert [values_in(topic.log) for topic in topics] == [[b"1", b"2", b"4"], [b"3"], []]
            assert values_in(a.log, 1) == [b"9"]
            place.reopen()

    def test_many_follow_one_another_over_segments(self, place: Place, topics: list[Topic]) -> None:
        for number in range(7):
            parts = {topic: deciding(values(b"%d" % number)) for topic in topics[number % 3 :]}
            commit_together(place, parts, CommitKey("w", number))
            if number % 3 == 1:
                place.reopen()
        assert [values_in(topic.log) for topic in topics] == [
            [b"0", b"3", b"6"],
            [b"0", b"1", b"3", b"4", b"6"],
            [b"0", b"1", b"2", b"3", b"4", b"5", b"6"],
        ]

    @pytest.mark.parametrize("planned", [0, 1, 2])
    def test_what_fails_in_one_topic_leaves_nothing_in_any(
        self, place: Place, topics: list[Topic], planned: int
    ) -> None:
        a, b, _ = topics
        a.publish(values(b"1"))
        before = [state_of(topic.log) for topic in topics]
        with pytest.raises(ValueError, match="undecided"):
            commit_together(place, {a: deciding(values(b"2")), b: failing(planned)}, CommitKey("w", 1))
        assert [state_of(topic.log) for topic in topics] == before
        assert place.store.catalog.commits.last_key("w") is None
        commit_together(place, {a: deciding(values(b"3")), b: deciding(values(b"4"))}, CommitKey("w", 1))
        place.reopen()
        assert [values_in(topic.log) for topic in (a, b)] == [[b"1", b"3"], [b"4"]]

    def test_a_known_key_publishes_nothing_whatever_topics_it_is_for(self, place: Place, topics: list[Topic]) -> None:
        a, b, c = topics
        commit_together(place, {a: deciding(values(b"1"))}, CommitKey("w", 4, 77))
        place.reopen()
        for parts in ({a: deciding(values(b"2"))}, {b: deciding(values(b"2")), c: deciding(values(b"3"))}):
            with pytest.raises(RepeatedCommit):
                commit_together(place, parts, CommitKey("w", 4, 77))
            with pytest.raises(RepeatedCommit):
                commit_together(place, parts, CommitKey("w", 3))
            for number in (3, 4):
                with pytest.raises(CommitConflict, match="has published"):
                    commit_together(place, parts, CommitKey("w", number, 78))
        assert [values_in(topic.log) for topic in topics] == [[b"1"], [], []]
        commit_together(place, {b: deciding(values(b"2"))}, CommitKey("w", 5, 1))
        assert place.store.catalog.commits.last_key("w") == CommitKey("w", 5, 1)

    def test_a_commit_without_messages_is_one_too(self, place: Place, topics: list[Topic]) -> None:
        commit_together(place, {topics[0]: deciding()}, CommitKey("w", 1))
        commit_together(place, {}, CommitKey("w", 2))
        place.reopen()
        assert place.store.catalog.commits.last_key("w") == CommitKey("w", 2)
        assert [values_in(topic.log) for topic in topics] == [[], [], []]

    def test_groups_change_with_it(self, place: Place, topics: list[Topic]) -> None:
        a, b, _ = topics
        catalog = place.store.catalog
        put_group(catalog, a.record.id, Group("readers"))

        def offsets(to: int) -> CatalogChange:
            return catalog.storing([GroupWrite(a.record.id, "readers", offsets={0: to})])

        commit_together(place, {b: deciding(values(b"1"))}, CommitKey("w", 1), [offsets(5)])
        place.reopen()
        catalog = place.store.catalog
        assert catalog.offsets(a.record.id, "readers") == {0: 5}
        for decide, key in ((failing(1), CommitKey("w", 2)), (deciding(values(b"2")), CommitKey("w", 1))):
            with pytest.raises((ValueError, RepeatedCommit)):
                commit_together(place, {b: decide}, key, [offsets(6)])
        assert catalog.offsets(a.record.id, "readers") == {0: 5}
        assert values_in(b.log) == [b"1"]

    def test_a_change_that_is_refused_leaves_nothing(self, place: Place, topics: list[Topic]) -> None:
        def refuse(connection: Connection) -> None:
            raise TopicDeleted("x")

        with pytest.raises(TopicDeleted):
            commit_together(place, {topics[0]: deciding(values(b"1"))}, CommitKey("w", 1), [refuse])
        place.reopen()
        assert values_in(topics[0].log) == []
        assert place.store.catalog.commits.last_key("w") is None

    def test_a_closed_log_takes_part_in_nothing(self, place: Place, topics: list[Topic]) -> None:
        if place.url == "memory:":
            return
        topics[1].log.close()
        with pytest.raises((LogFailed, StorageError)):
            commit_together(place, {topic: deciding(values(b"1")) for topic in topics})
        place.reopen()
        assert [values_in(topic.log) for topic in topics] == [[], [], []]

    def test_writers_beyond_a_maximum_are_forgotten(self, place: Place) -> None:
        commits = place.store.catalog.commits
        for number, name in enumerate(["x", "y", "z", "x"]):
            place.store.commit(StoreCommit({}, NOW_US + number, CommitKey(name, number)))
        assert commits.forget_writers(2, 0) == 1
        assert commits.last_key("y") is None
        assert commits.last_key("x") == CommitKey("x", 3)
        assert commits.forget_writers(2, 0) == 0

    def test_writers_of_a_single_commit_make_no_other_forgotten(self, place: Place) -> None:
        commits = place.store.catalog.commits
        once = [one_time_writer("ä", f"{number:032d}") for number in range(3)]
        for number, name in enumerate(["sink", *once]):
            place.store.commit(StoreCommit({}, NOW_US + number, CommitKey(name, number)))
        assert commits.forget_writers(1, 2) == 1
        keys = [commits.last_key(name) for name in ["sink", *once]]
        assert [None if key is None else key.number for key in keys] == [0, None, 2, 3]

"""What many groups store at the same time shares a transaction, and holds up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.broker.groups.turns import GroupTurns
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import GroupNotFound, StaleGeneration, StoreUnavailable, TopicNotFound
from headrace.storage.catalog import GroupWrite
from tests.broker.background import Background, eventually, together
from tests.broker.messages import batch

PATIENCE_SECONDS = 60.0
GROUPS = 8


class Held:
    """A store on disk; the writes of its groups are recorded, and held up while `gate` is closed."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.written: list[list[str]] = []
        catalog = broker.store.catalog
        write_groups = catalog.write_groups

        def write(writes: Sequence[GroupWrite]) -> None:
            self.written.append([each.name for each in writes])
            self.has_begun.set()
            assert self.gate.wait(PATIENCE_SECONDS)
            write_groups(writes)

        monkeypatch.setattr(catalog, "write_groups", write)

    def hold(self) -> None:
        """Hold up all writes from now on."""
        self.gate.clear()
        self.has_begun.clear()
        self.written.clear()

    def waiting(self, count: int) -> None:
        """Wait until so many writes wait behind the one that is held up."""
        eventually(lambda: len(self.broker.topics._ledger._waiting) >= count)


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    with Broker.open(f"file:{tmp_path}/store", settings=BrokerSettings(retention_check_seconds=3600.0)) as broker:
        for topic in ("orders", "bills"):
            broker.create_topic(topic)
            broker.publish(topic, batch(*(b"%d" % number for number in range(10))))
            for group in range(GROUPS):
                broker.register_group(topic, f"g{group}")
        yield Held(broker, monkeypatch)


def of_groups(work: Callable[[int], None], *others: Callable[[], None]) -> None:
    """Do something for each group, and other things, all at the same time."""
    together([partial(work, group) for group in range(GROUPS)] + [*others])


def test_commits_of_many_groups_and_topics_share_a_transaction(held: Held) -> None:
    broker = held.broker
    held.hold()
    first = Background(lambda: broker.commit_offsets("orders", "g0", {0: 1}))
    assert held.has_begun.wait(PATIENCE_SECONDS)
    others = [(topic, f"g{group}") for topic in ("orders", "bills") for group in range(1, GROUPS)]
    threads = [Background(partial(broker.commit_offsets, *each, {0: 2})) for each in others]
    held.waiting(len(others))
    held.gate.set()
    for thread in [first, *threads]:
        thread.result()
    assert list(map(len, held.written)) == [1, len(others)]
    assert broker.committed("orders", "g0") == {0: 1}
    assert all(broker.committed(*each) == {0: 2} for each in others)


def test_a_topic_that_is_deleted_meanwhile_fails_no_commit_of_another(held: Held) -> None:
    broker = held.broker
    held.hold()
    first = Background(lambda: broker.commit_offsets("orders", "g0", {0: 1}))
    assert held.has_begun.wait(PATIENCE_SECONDS)
    outcomes: list[Exception | None] = []

    def commit_to_the_deleted() -> None:
        try:
            broker.commit_offsets("bills", "g1", {0: 2})
            outcomes.append(None)
        except Exception as error:
            outcomes.append(error)

    second = Background(commit_to_the_deleted)
    third = Background(lambda: broker.commit_offsets("orders", "g1", {0: 2}))
    held.waiting(2)
    # As if its row were gone already: the commit refers to a topic that does not exist.
    bills = broker.topics.find("bills").record.id
    broker.store.catalog.remove_topic(bills)
    held.gate.set()
    for thread in (first, second, third):
        thread.result()
    assert [len(names) for names in held.written] == [1, 2, 1, 1]
    assert isinstance(outcomes[0], StoreUnavailable | TopicNotFound)
    assert broker.committed("orders", "g1") == {0: 2}


def test_a_transaction_that_fails_moves_no_group(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = held.broker

    def fail(_: Sequence[GroupWrite]) -> None:
        raise StoreUnavailable("here", "no disk")

    broker.commit_offsets("orders", "g0", {0: 1})
    with monkeypatch.context() as patched:
        patched.setattr(broker.store.catalog, "write_groups", fail)

        def refused(group: int) -> None:
            with pytest.raises(StoreUnavailable):
                broker.commit_offsets("orders", f"g{group}", {0: 5})
            with pytest.raises(StoreUnavailable):
                broker.seek("orders", f"g{group}", {0: 0})
            with pytest.raises(StoreUnavailable):
                broker.delete_group("orders", f"g{group}")
            with pytest.raises(StoreUnavailable):
                broker.register_group("orders", f"new{group}")

        of_groups(refused)
        assert not [name for name in broker.list_groups("orders") if name.startswith("new")]
    assert broker.committed("orders", "g0") == {0: 1}
    assert broker.committed("orders", "g1") == {}
    broker.commit_offsets("orders", "g1", {0: 5})
    assert broker.committed("orders", "g1") == {0: 5}


def test_a_refused_commit_leaves_those_beside_it_alone(held: Held) -> None:
    broker = held.broker

    def commit(group: int) -> None:
        if group % 2:
            broker.commit_offsets("orders", f"g{group}", {0: group})
        else:
            with pytest.raises(StaleGeneration):
                broker.commit_offsets("orders", f"g{group}", {0: group}, generation=99)

    of_groups(commit)
    assert [broker.committed("orders", f"g{group}") for group in range(4)] == [{}, {0: 1}, {}, {0: 3}]


def test_retention_holds_up_what_moves_a_group_back_and_no_commit(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = held.broker
    broker.register_group("orders", "audit", important=True)
    opened = broker.topics.find("orders")
    has_begun, may_end = threading.Event(), threading.Event()
    drop_outlived = opened.topic.log.drop_outlived

    order: list[str] = []

    def slow(*arguments: Any) -> Any:
        has_begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        order.append("retention")
        return drop_outlived(*arguments)

    def seek() -> None:
        broker.seek("orders", "audit", {0: 0})
        order.append("seek")

    monkeypatch.setattr(opened.topic.log, "drop_outlived", slow)
    retention = Background(lambda: opened.groups.drop_outlived(0))
    assert has_begun.wait(PATIENCE_SECONDS)
    broker.commit_offsets("orders", "audit", {0: 7})
    broker.commit_offsets("orders", "g0", {0: 3})
    seeking = Background(seek)
    assert broker.committed("orders", "audit") == {0: 7}
    may_end.set()
    retention.result()
    seeking.result()
    assert order == ["retention", "seek"]
    assert broker.committed("orders", "audit") == {0: 0}


def test_offsets_that_are_asked_for_first_beside_commits_are_those_stored(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    with Broker.open(url) as broker:
        broker.create_topic("orders")
        broker.publish("orders", batch(*(b"%d" % number for number in range(200))))
        for group in range(GROUPS):
            broker.register_group("orders", f"g{group}")
            broker.commit_offsets("orders", f"g{group}", {0: 1})
    with Broker.open(url) as broker:
        store = broker.topics.find("orders").groups._store

        def commit(group: int) -> None:
            for offset in range(2, 100):
                broker.commit_offsets("orders", f"g{group}", {0: offset})

        def look() -> None:
            for _ in range(50):
                store.all_offsets()

        of_groups(commit, look, look)
        expected = {f"g{group}": {0: 99} for group in range(GROUPS)}
        assert store.all_offsets() == expected == broker.store.catalog.all_offsets(1)


def test_what_is_asked_of_groups_while_they_are_deleted_and_forgotten(held: Held) -> None:
    broker = held.broker
    store = broker.topics.find("orders").groups._store

    def change(group: int) -> None:
        name = f"g{group}"
        for offset in range(1, 10):
            broker.commit_offsets("orders", name, {0: offset})
            broker.forget_offsets("orders", name, [0])
            broker.delete_group("orders", name)
            with pytest.raises(GroupNotFound):
                broker.committed("orders", name)
            broker.register_group("orders", name)

    def look() -> None:
        for _ in range(50):
            store.all_offsets()

    of_groups(change, look, look)
    assert store.all_offsets() == {f"g{group}": {} for group in range(GROUPS)}


def test_names_without_users_take_no_memory() -> None:
    turns = GroupTurns()
    with turns.of("a"):
        with turns.of("b"):
            assert sorted(turns.names()) == ["a", "b"]
        assert turns.names() == ["a"]
    assert not turns._locks and not turns._users

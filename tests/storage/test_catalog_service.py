"""What the service keeps in the catalog, tokens and numbers, as two processes on one database see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from headrace.core.errors import StoreUnavailable
from headrace.core.ids import Kind
from headrace.core.rights import check_grants
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import Catalog
from headrace.storage.tokens import TokenRecord
from tests.broker.background import together


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Catalog, Catalog]]:
    """Two catalogs over one database."""
    url = f"sqlite:///{tmp_path / 'catalog'}"
    catalogs = [Catalog(create_engine(url, connect_args={"check_same_thread": False}), "the store") for _ in range(2)]
    yield catalogs[0], catalogs[1]
    for catalog in catalogs:
        catalog.close()


def token(token_id: str, created_us: int, name: str = "ann") -> TokenRecord:
    grants = check_grants([("Team-*", ["read", "publish"]), ('it\'s "q" 🐎', ["manage"])])
    return TokenRecord(token_id, name, "hash of " + token_id, grants, created_us)


def topic_in(catalog: Catalog, name: str = "orders") -> int:
    return catalog.add_topic(name, name, 1, DEFAULT_SETTINGS, 0, lambda topic: None).id


def test_a_token_that_one_makes_the_other_knows_and_may_revoke(two: tuple[Catalog, Catalog]) -> None:
    one, other = two
    assert one.tokens.all() == []
    made = [token("b", 1, "'; DROP TABLE all_tokens; --"), token("a", 2), token("c", 2)]
    for record in reversed(made):
        one.tokens.add(record)
    assert other.tokens.all() == made
    assert other.tokens.remove("a") is True
    assert one.tokens.all() == [made[0], made[2]]
    assert one.tokens.remove("a") is False
    assert one.tokens.remove("") is False


def test_a_token_id_is_used_once(two: tuple[Catalog, Catalog]) -> None:
    one, other = two
    one.tokens.add(token("a", 1))
    with pytest.raises(StoreUnavailable):
        other.tokens.add(token("a", 2, "eve"))
    assert [record.name for record in one.tokens.all()] == ["ann"]


def test_numbers_are_given_once_by_both(two: tuple[Catalog, Catalog]) -> None:
    topic_id = topic_in(two[0])
    kinds: list[Kind] = ["consumer", "producer"]
    taken = together(
        [
            lambda catalog=catalog, kind=kind: [(kind, catalog.take_number(topic_id, kind)) for _ in range(20)]  # type: ignore[misc]
            for catalog in two
            for kind in kinds
        ]
    )
    numbers = sorted(pair for pairs in taken for pair in pairs)
    assert numbers == [(kind, number) for kind in kinds for number in range(1, 41)]
    assert [catalog.numbers_given(topic_id, kind) for catalog in two for kind in kinds] == [40] * 4


def test_numbers_start_over_in_a_topic_that_is_made_again_under_another_id(two: tuple[Catalog, Catalog]) -> None:
    one, other = two
    first = topic_in(one)
    assert one.take_number(first, "consumer") == 1
    one.remove_topic(first)
    second = topic_in(other)
    assert second != first
    assert other.take_number(first, "consumer") is None
    assert other.numbers_given(first, "consumer") is None
    assert one.numbers_given(second, "consumer") == 0
    assert one.take_number(second, "consumer") == 1

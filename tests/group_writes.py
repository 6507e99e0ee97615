"""Changes of groups in a catalog, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.groups.group import Group
from headrace.storage.catalog import Catalog, GroupWrite


def put_group(catalog: Catalog, topic_id: int, group: Group, offsets: Mapping[int, int] | None = None) -> None:
    """Store a group with its initial offsets."""
    catalog.write_groups([GroupWrite(topic_id, group.name, group, offsets or {})])


def put_offsets(catalog: Catalog, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
    """Store committed offsets."""
    catalog.write_groups([GroupWrite(topic_id, group, offsets=offsets)])


def drop_offsets(catalog: Catalog, topic_id: int, group: str, partitions: Sequence[int]) -> None:
    """Forget committed offsets."""
    catalog.write_groups([GroupWrite(topic_id, group, dropped=partitions)])


def remove_group(catalog: Catalog, topic_id: int, group: str) -> None:
    """Delete a group with its offsets."""
    catalog.write_groups([GroupWrite(topic_id, group, is_removed=True)])

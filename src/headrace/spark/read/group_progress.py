"""A query's progress as a group of the broker: so that its lag is seen there, and retention waits for it if it is to.

The group is made at the first report, and again if somebody deletes it. A commit never moves a group back, so a query
that is restarted from an older checkpoint does no harm. Not safe for threads: one process of the driver reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.errors import GroupNotFound
from headrace.spark.options import ReadOptions


class GroupProgress:
    """How far a query has told its group to be."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._told: dict[int, int] | None = None

    def report(self, offsets: Mapping[int, int]) -> None:
        """Everything before these offsets was read; says so to the broker if it is notifications."""
        options = self._options
        if options.group is None:
            return
        call, topic, group = options.connection.call, options.topic, options.group
        if self._told is None:
            self._register(group)
        told = self._told or {}
        notifications = {partition: offset for partition, offset in offsets.items() if offset > told.get(partition, -1)}
        if not notifications:
            return
        try:
            call(lambda client: client.commit(topic, group, notifications))
        except GroupNotFound:
            # Somebody deleted it, alone or with its topic. The query needs it no less for that.
            self._register(group)
            notifications = dict(offsets)
            call(lambda client: client.commit(topic, group, notifications))
        self._told = told | notifications

    def _register(self, group: str) -> None:
        options = self._options
        topic, important = options.topic, options.important
        options.connection.call(lambda client: client.register_group(topic, group, important=important))
        self._told = {}

"""Reports a query's progress to a group of the broker, which shows its lag and can hold back retention.

The group is created at the first report, and again if it is deleted. A commit never moves a group back, so a query
that is restarted from an older checkpoint does no harm. Not thread-safe: one process of the driver reports.

A seek of the group cannot move the query, which reads from its checkpoint; and the query does not undo the seek. It
logs a warning and reports no more until it is restarted: until then the group stands where the operator put it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from headrace.core.errors import GroupNotFound, StaleGeneration
from headrace.spark.options import ReadOptions
from headrace.spark.reader.topic_selection import DELETED

logger = logging.getLogger(__name__)


class GroupProgress:
    """The progress that a query has reported to its group of one topic."""

    def __init__(self, options: ReadOptions, topic: str) -> None:
        self._options = options
        self._topic = topic
        self._told: dict[int, int] | None = None
        self._generation = 0
        # Whether a seek moved the group since this query began to report.
        self._is_moved = False

    def report(self, offsets: Mapping[int, int]) -> None:
        """Report that everything before these offsets was read, if the offsets are new.

        To the group of a topic that was deleted nothing is reported: the next look at the topics says so.
        """
        with suppress(*DELETED):
            self._report(offsets)

    def _report(self, offsets: Mapping[int, int]) -> None:
        options = self._options
        if options.group is None or self._is_moved:
            return
        group = options.group
        if self._told is None:
            self._register(group)
        told = self._told or {}
        notifications = {partition: offset for partition, offset in offsets.items() if offset > told.get(partition, -1)}
        if not notifications:
            return
        try:
            self._commit(group, notifications)
        except GroupNotFound:
            # The group was deleted, alone or with its topic: create it again.
            self._register(group)
            notifications = dict(offsets)
            self._commit(group, notifications)
        self._told = told | notifications

    def _commit(self, group: str, offsets: dict[int, int]) -> None:
        """Commit, unless an operator moved the group."""
        call, topic, generation = self._options.connection.call, self._topic, self._generation
        try:
            call(lambda client: client.commit_offsets(topic, group, offsets, generation=generation))
        except StaleGeneration:
            present = call(lambda client: client.describe_group(topic, group))
            self._is_moved = present.seek_generation > generation
            if self._is_moved:
                logger.warning(
                    "group %r of topic %r was moved by a seek. The query continues from its checkpoint and does not "
                    "report its progress to the group until it is restarted",
                    group,
                    topic,
                )
                return
            # Only its size or its members changed.
            self._generation = present.generation
            call(lambda client: client.commit_offsets(topic, group, offsets, generation=present.generation))

    def _register(self, group: str) -> None:
        options = self._options
        topic, important = self._topic, options.important
        made = options.connection.call(lambda client: client.register_group(topic, group, important=important))
        self._told, self._generation = {}, made.generation

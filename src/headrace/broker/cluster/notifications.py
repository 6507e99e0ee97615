"""Notifications from other servers of a shared store: they wake local waiters.

    notification  effect here
    topic:<id>    readers of the topic read again
    group:<id>    the same, and the cache of its groups is cleared
    topics        the topics are compared with the catalog
    none          all of these: the connection was lost, or is new

A notification may be lost. So maintenance polls every second the topics that have waiters, and less often all of them.
Runs in the listening thread, or in that of maintenance. A failed poll is logged: the next one repairs it.
"""

from __future__ import annotations

import logging

from headrace.broker.cluster.announcements import COMMIT, GROUP, TOPICS, parse_notification
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import HeadraceError, TableMissing, TopicDeleted

logger = logging.getLogger(__name__)


class Notifications:
    """Dispatches notifications to the topics of a broker."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def receive(self, notification: str | None) -> None:
        """Handle one notification of any server; None stands for all kinds."""
        if notification is None:
            self.compare_topics()
            self.poll_waiting_topics()
            return
        kind, topic_id = parse_notification(notification)
        if kind == TOPICS:
            self.compare_topics()
        elif kind in (COMMIT, GROUP) and topic_id is not None:
            found = self._topics.of_id(topic_id)
            if found is not None:
                self._poll(found, is_group=kind == GROUP)

    def poll_waiting_topics(self) -> None:
        """Poll every topic that has waiters, in case a notification was lost."""
        for opened in self._topics.all():
            self._poll(opened, is_group=True)

    def compare_topics(self) -> None:
        """Apply topics that other servers created, altered or deleted."""
        try:
            self._topics.sync()
        except HeadraceError as error:
            logger.warning("cannot check the topics of other servers, will retry: %s", error)

    def was_deleted(self, opened: OpenTopic, error: Exception) -> bool:
        """Whether work on a topic failed because it was deleted, perhaps by another server a moment ago."""
        if opened.topic.ended is None and isinstance(error, TopicDeleted | TableMissing):
            self.compare_topics()
        return opened.topic.ended is not None

    def _poll(self, opened: OpenTopic, is_group: bool) -> None:
        if is_group:
            opened.groups.forget()
        try:
            opened.topic.wake_changed(everyone=is_group)
        except HeadraceError as error:
            if not self.was_deleted(opened, error):
                logger.warning("cannot check topic %r, will retry: %s", opened.record.name, error)

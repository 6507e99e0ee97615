"""News from the other servers of a shared store: whoever waits here is told to look again.

    word          heard here
    topic:<id>    readers of the topic look again
    group:<id>    the same, and what was seen of its groups is forgotten
    topics        the topics are compared with the catalog
    none          all of these: the connection was lost, or is new

A word may be lost. So maintenance looks around every second, at topics that someone waits on, and now and then at all.
Hearing runs in the thread that listens, or in that of maintenance. A look that fails is logged: the next one mends it.
"""

from __future__ import annotations

import logging

from headrace.broker.cluster.announcements import COMMIT, GROUP, TOPICS, parse_word
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import HeadraceError, TopicDeleted

logger = logging.getLogger(__name__)


class Notifications:
    """Tells the topics of a broker what is heard."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def hear(self, word: str | None) -> None:
        """One word of another server, or of this one; none stands for any."""
        if word is None:
            self.compare_topics()
            self.look_around()
            return
        kind, topic_id = parse_word(word)
        if kind == TOPICS:
            self.compare_topics()
        elif kind in (COMMIT, GROUP) and topic_id is not None:
            found = self._topics.of_id(topic_id)
            if found is not None:
                self._look(found, is_group=kind == GROUP)

    def look_around(self) -> None:
        """Look at every topic that someone waits on, whose notifications may have been lost."""
        for opened in self._topics.all():
            self._look(opened, is_group=True)

    def compare_topics(self) -> None:
        """Take in topics that were made, changed or deleted through other servers."""
        try:
            self._topics.sync()
        except HeadraceError as error:
            logger.warning("cannot check the topics of other servers, will retry: %s", error)

    def _look(self, opened: OpenTopic, is_group: bool) -> None:
        if is_group:
            opened.groups.forget()
        try:
            opened.topic.heed(everyone=is_group)
        except TopicDeleted:
            self.compare_topics()
        except HeadraceError as error:
            if opened.topic.ended is None:
                logger.warning("cannot check topic %r, will retry: %s", opened.record.name, error)

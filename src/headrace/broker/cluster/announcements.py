"""The notifications between servers of a shared store; the log sends the first kind itself.

topic:<id>        after a commit to a topic
group:<id>        after a group of a topic moved to another generation, or was deleted
topics            after a topic was created, altered or deleted
"""

from __future__ import annotations

from typing import Final

TOPICS: Final = "topics"
COMMIT: Final = "topic"
GROUP: Final = "group"


def group_notification(topic_id: int) -> str:
    """The notification for a changed group of a topic."""
    return f"{GROUP}:{topic_id}"


def parse_notification(notification: str) -> tuple[str, int | None]:
    """The kind of a notification, and its topic if it names one."""
    kind, _, rest = notification.partition(":")
    return kind, int(rest) if rest.isdecimal() else None

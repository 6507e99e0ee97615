"""The words that servers of a shared store say to each other; a log says the first of them itself.

topic:<id>        after a commit to a topic
group:<id>        after a group of a topic moved to another generation, or was deleted
topics            after a topic was made, changed or deleted
"""

from __future__ import annotations

from typing import Final

TOPICS: Final = "topics"
COMMIT: Final = "topic"
GROUP: Final = "group"


def group_word(topic_id: int) -> str:
    """What is said when a group of a topic has moved."""
    return f"{GROUP}:{topic_id}"


def parse_word(word: str) -> tuple[str, int | None]:
    """The kind of a word, and the topic that it is about if it names one."""
    kind, _, rest = word.partition(":")
    return kind, int(rest) if rest.isdecimal() else None

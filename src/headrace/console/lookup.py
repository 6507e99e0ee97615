"""Finds what somebody types into the search of the console: pages, topics and groups by a part of their name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from headrace.console.monitor.history import History
from headrace.console.sessions import SignedIn
from headrace.console.view import text
from headrace.core.errors import HeadraceError

# Path, label and icon; the first is the page that `/` shows.
NAVIGATION: Final = (
    ("/", "Overview", "dashboard"),
    ("/topics", "Topics", "list_alt"),
    ("/groups", "Groups", "groups"),
    ("/pipelines", "Pipelines", "account_tree"),
    ("/access", "Access", "key"),
    ("/audit", "Audit", "history"),
    ("/server", "Server", "dns"),
)
# As many of a kind are listed.
LISTED_MAX: Final = 100
# Without samples the groups of this many topics are asked for.
_TOPICS_ASKED: Final = 50


@dataclass(frozen=True)
class Hit:
    """Something that was found: what kind it is, its name, what it belongs to, and its page."""

    kind: str
    name: str
    of: str
    target: str


@dataclass(frozen=True)
class Hits:
    """What was found, the best first: pages, topics, groups; and how many more there are."""

    hits: list[Hit]
    more: int
    wanted: str

    @property
    def only(self) -> str | None:
        """Where to go at once: the only hit, or the only one whose whole name was typed."""
        exact = [hit for hit in self.hits if hit.name.casefold() == self.wanted.casefold()]
        best = exact if len(exact) == 1 else self.hits
        return best[0].target if len(best) == 1 else None


async def find(session: SignedIn, history: History, wanted: str) -> Hits:
    """What the visitor may see and whose name contains the text, whatever its case."""
    part = wanted.strip().casefold()
    pages = [Hit("Page", label, "", target) for target, label, _ in NAVIGATION]
    try:
        names = await session.client.list_topics()
    except HeadraceError:
        names = []
    topics = [Hit("Topic", name, "", text.topic_page(name)) for name in names]
    groups = [
        Hit("Group", group, topic, text.group_page(topic, group))
        for topic, group in await _groups(session, history, names)
    ]
    hits: list[Hit] = []
    more = 0
    for kind in (pages, topics, groups):
        matching = [hit for hit in kind if part in hit.name.casefold()]
        matching.sort(key=lambda hit: (not hit.name.casefold().startswith(part), hit.name.casefold(), hit.of))
        hits += matching[:LISTED_MAX]
        more += max(0, len(matching) - LISTED_MAX)
    return Hits(hits, more, wanted.strip())


async def _groups(session: SignedIn, history: History, names: list[str]) -> list[tuple[str, str]]:
    """Groups by topic and name: those of the last sample, and of few topics all that there are."""
    sampled = history.last.groups if history.last is not None else {}
    if len(names) > _TOPICS_ASKED:
        return [key for key in sampled if session.may_read(key[0])]
    readable = [name for name in names if session.may_read(name)]
    listed = await asyncio.gather(*(session.client.list_groups(name) for name in readable), return_exceptions=True)
    return [
        (topic, group)
        for topic, groups in zip(readable, listed, strict=True)
        for group in (() if isinstance(groups, BaseException) else groups)
    ]

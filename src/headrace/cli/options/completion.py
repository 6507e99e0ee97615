"""Completion of topic and group names in a shell: asks the server, and offers nothing if it does not answer.

A completion must never print an error or wait for long, so every failure means no suggestions.
"""

from __future__ import annotations

from typing import Any


def complete_topics(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Topics that start with what was typed."""
    return _matching(incomplete, lambda client: client.list_topics(), ctx)


def complete_groups(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Groups of the topic that was typed before, or of all topics."""

    def groups(client: Any) -> list[str]:
        given = ctx.params.get("topic") or ctx.params.get("topics")
        topics = [given] if isinstance(given, str) else list(given or client.list_topics())
        return sorted({group for topic in topics for group in client.list_groups(topic)})

    return _matching(incomplete, groups, ctx)


def _matching(incomplete: str, look: Any, ctx: Any) -> list[str]:
    from headrace.cli.exits import Failure
    from headrace.cli.remote.connection import connected
    from headrace.core.errors import HeadraceError

    options = ctx.params
    try:
        with connected(options.get("url"), options.get("token"), options.get("ca"), 1.0) as client:
            return [name for name in look(client) if name.casefold().startswith(incomplete.casefold())]
    except (Failure, HeadraceError, OSError):
        return []

"""All pages, added to the application."""

from __future__ import annotations

from headrace.console.pages import access, audit, group, groups, overview, pipelines, search, topics
from headrace.console.pages.server import page as server
from headrace.console.pages.topic import page as topic
from headrace.console.view.frame import Frame


def register_all(frame: Frame) -> None:
    """Add all pages."""
    for module in (overview, topics, topic, groups, group, search, pipelines, access, audit, server):
        module.register(frame)

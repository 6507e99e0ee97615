"""A topic: its tabs, each drawn when it is first opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from headrace.console.pages.groups import GroupTable
from headrace.console.pages.topic import figures, messages, partitions, producers, settings
from headrace.console.pages.topic.publish import PublishDialog
from headrace.console.pages.topics import delete_topic
from headrace.console.view import parts, text
from headrace.console.view.frame import Frame
from headrace.console.view.visit import Visit
from headrace.core.errors import NotFound
from headrace.core.reports.descriptions import TopicDescription
from headrace.core.rights import Right

Tab = Callable[[Visit, TopicDescription], Awaitable[None]]


async def _build_groups(visit: Visit, topic: TopicDescription) -> None:
    await GroupTable(visit, topic.name).start()


_TABS: dict[str, tuple[str, Tab]] = {
    "messages": ("Messages", messages.build),
    "charts": ("Charts", figures.build),
    "partitions": ("Partitions", partitions.build),
    "groups": ("Groups", _build_groups),
    "producers": ("Producers", producers.build),
    "settings": ("Settings", settings.build),
}


def register(frame: Frame) -> None:
    """Add the page."""
    frame.page("/topic", "Topic")(build)


async def build(visit: Visit) -> None:
    """Draw the page."""
    name = visit.query.get("name", "")
    if not visit.session.may_read(name):
        _show_unreadable(visit, name)
        return
    topic: TopicDescription | None = None
    with visit.reporting(in_banner=True):
        try:
            topic = await visit.client.describe_topic(name)
        except NotFound:
            with parts.panel(), parts.empty(f"There is no topic {text.visible(name)!r}", "It may have been deleted."):
                ui.link("All topics", "/topics")
            return
    if topic is None:
        return
    ui.page_title(f"{text.visible(topic.name)} · Headrace")
    _show_head(visit, topic)
    figures.Figures(visit, topic)
    await _show_tabs(visit, topic)


def _show_head(visit: Visit, topic: TopicDescription) -> None:
    with ui.element("div").classes("hr-bar"):
        with ui.element("div").classes("hr-grow"):
            ui.link("Topics", "/topics").classes("hr-small")
            parts.title(topic.name)
        if visit.session.may(Right.PUBLISH, topic.name):
            ui.button("Publish", icon="send", on_click=lambda: PublishDialog(visit, topic.name).open()).props(
                "unelevated"
            )
        if visit.session.may(Right.MANAGE, topic.name):
            ui.button("Delete", icon="delete", on_click=lambda: delete_topic(visit, topic)).props("flat color=negative")


async def _show_tabs(visit: Visit, topic: TopicDescription) -> None:
    wanted = visit.query.get("tab", "messages")
    first = wanted if wanted in _TABS else "messages"
    drawn: set[str] = set()

    async def draw(tab: str) -> None:
        if tab in drawn:
            return
        drawn.add(tab)
        with panels[tab], visit.reporting(in_banner=True):
            await _TABS[tab][1](visit, topic)

    async def change(tab: str) -> None:
        ui.navigate.history.replace(visit.addresses.get(tab) or text.topic_page(topic.name, tab))
        await draw(tab)

    with (
        ui.tabs().classes("hr-tabs").props("align=left dense no-caps inline-label outside-arrows mobile-arrows") as tabs
    ):
        for tab, (label, _) in _TABS.items():
            ui.tab(tab, label)
    panels: dict[str, ui.element] = {}
    with ui.tab_panels(tabs, animated=False).classes("full-width").props("keep-alive").style("background: transparent"):
        for tab in _TABS:
            with ui.tab_panel(tab).classes("q-pa-none"):
                panels[tab] = ui.column().classes("full-width").style("gap: 12px")
    tabs.set_value(first)
    tabs.on_value_change(lambda event: change(str(event.value)))
    await draw(first)


def _show_unreadable(visit: Visit, name: str) -> None:
    parts.title(name)
    with (
        parts.panel(),
        parts.empty("Your token may not read this topic", f"You are signed in as {visit.session.caller.name}."),
    ):
        pass

"""Settings of a topic, each with its meaning, edited in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.frame import Visit
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.reports.descriptions import TopicDescription
from headrace.core.rights import Right
from headrace.core.topics.settings import CODECS, TopicSettings

# Name, label, meaning; the names are those of `TopicSettings`.
_TEXTS = {
    "partitions": ("Partitions", "May grow and never shrink. More partitions move keys to other partitions."),
    "retention_seconds": ("Keep for (seconds)", "Older messages may be deleted. Empty: forever."),
    "retention_bytes": ("Keep at most (bytes)", "The oldest messages are deleted above this size. Empty: no limit."),
    "deduplication": (
        "Deduplication",
        "producer: by producer id and seqno. payload: also a value seen within the window. off: everything is written.",
    ),
    "deduplication_window_seconds": ("Window (seconds)", "How long a payload is remembered."),
    "deduplication_window_messages": ("Window (messages)", "How many payloads are remembered, 24 bytes each."),
    "deduplication_scope": ("Window scope", "Where payloads must be unique: in this topic, or in all of scope store."),
    "codecs": ("Codecs", "What producers may compress values with."),
    "message_bytes_max": ("Largest message (bytes)", "Value, key and attributes together."),
    "key_hash": ("Hash of keys", "murmur2 places keys as Kafka's clients do. A change moves later messages of a key."),
    "timestamp_type": ("Time for Kafka", "What Kafka's consumers see: when a message was created, or written here."),
    "archive": ("Archive", "on: messages are copied to the archive of the store, and none is deleted before that."),
    "archive_after_seconds": ("Archive after (seconds)", "The latest time after which a message is archived."),
    "archive_retention_seconds": ("Keep archived for (seconds)", "Empty: forever."),
    "local_retention_seconds": ("Keep here for (seconds)", "Of archived messages in the log. Empty: as Keep for."),
    "local_retention_bytes": ("Keep here at most (bytes)", "Of archived messages in the log. Empty: as Keep at most."),
    "value_schema": (
        "Schema of values",
        "A JSON or Avro schema: tables have a column for each field. It may only grow by optional fields. Empty: none.",
    ),
    "kafka_configs": ("Configs of Kafka", "Set by Kafka's tools and shown to them. They change nothing here."),
    "annotations": (
        "Annotations",
        "Texts that programs keep with the topic, such as YDB's attributes. They change nothing here.",
    ),
}
# Set by the programs that they belong to.
_SHOWN_ONLY = {"kafka_configs", "annotations"}
_CHOICES = {
    name: list(get_args(kind)) for name, kind in get_type_hints(TopicSettings).items() if get_origin(kind) is Literal
}


async def build(visit: Visit, topic: TopicDescription) -> None:
    """Draw the tab."""
    may_change = visit.session.may(Right.MANAGE, topic.name)
    values: dict[str, Any] = {"partitions": topic.partitions}
    values |= {name: getattr(topic.settings, name) for name in _TEXTS if name != "partitions"}
    with parts.panel():
        for name, (label, meaning) in _TEXTS.items():
            with ui.element("div").classes("hr-bar").style("padding: 4px 0"):
                with ui.element("div").style("flex: 1 1 260px"):
                    ui.label(label).classes("hr-panel-title")
                    ui.label(meaning).classes("hr-muted hr-small")
                if may_change and name not in _SHOWN_ONLY:
                    _Field(visit, topic.name, name, label, values[name])
                else:
                    ui.label(_shown(values[name]))
    with ui.element("div").classes("hr-muted hr-small"):
        ui.label("Created")
        parts.moment(topic.created_us)


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={config}" for name, config in value.items())
    return ", ".join(value) if isinstance(value, tuple) else f"{value:,}" if isinstance(value, int) else str(value)


class _Field:
    """One setting: a field, and a button that appears when it was changed."""

    def __init__(self, visit: Visit, topic: str, name: str, label: str, value: Any) -> None:
        self._visit = visit
        self._topic = topic
        self._name = name
        self._known = value
        self._read: Callable[[], Any]
        style = "width: 220px"
        if name in _CHOICES:
            field: Any = ui.select(_CHOICES[name], value=value)
            self._read = lambda: field.value
        elif name == "codecs":
            field = ui.select(list(CODECS), value=list(value), multiple=True)
            self._read = lambda: tuple(field.value)
        elif name == "value_schema":
            field = ui.textarea(value=value or "")
            self._read = lambda: field.value or None
        else:
            most = PARTITIONS_MAX if name == "partitions" else None
            field = ui.number(value=value, min=1, max=most, precision=0)
            self._read = lambda: None if field.value is None else int(field.value)
        field.props(f'outlined dense options-dense aria-label="{label}"').style(style)
        self._save = ui.button("Save", on_click=self._store).props("unelevated dense padding='4px 12px'")
        self._save.set_visibility(False)
        field.on_value_change(lambda: self._save.set_visibility(self._read() != self._known))

    async def _store(self) -> None:
        value = self._read()
        with self._visit.reporting():
            if self._name == "partitions":
                await self._visit.client.alter_topic(self._topic, value)
            else:
                settings: dict[str, Any] = {self._name: value}
                await self._visit.client.alter_topic(self._topic, **settings)
            self._known = value
            self._save.set_visibility(False)
            ui.notify(f"Saved: {text.visible(self._name)} is {_shown(value)}", type="positive")

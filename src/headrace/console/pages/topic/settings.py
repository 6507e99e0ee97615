"""Settings of a topic, each with its meaning, edited in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from nicegui import ui

from headrace.console.view import parts, text
from headrace.console.view.visit import Visit
from headrace.core.amounts import BYTES, NONE, SECONDS, amount_typed, parse_amount
from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.reports.descriptions import TopicDescription
from headrace.core.rights import Right
from headrace.core.topics.settings import CODECS, TopicSettings

# Name, label, meaning; the names are those of `TopicSettings`.
_TEXTS = {
    "partitions": ("Partitions", "May grow and never shrink. More partitions move keys to other partitions."),
    "retention_seconds": ("Keep for", "Older messages may be deleted: 90m, 36h, 7d; none keeps them for ever."),
    "retention_bytes": (
        "Keep at most",
        "The oldest messages are deleted above this size: 500M, 10G; none is no limit.",
    ),
    "deduplication": (
        "Deduplication",
        "producer: by producer id and seqno. payload: also a value seen within the window. off: everything is written.",
    ),
    "deduplication_window_seconds": ("Window", "How long a payload is remembered: 90s, 24h."),
    "deduplication_window_messages": ("Window (messages)", "How many payloads are remembered, 24 bytes each."),
    "deduplication_scope": ("Window scope", "Where payloads must be unique: in this topic, or in all of scope store."),
    "codecs": ("Codecs", "What producers may compress values with."),
    "message_bytes_max": ("Largest message", "Value, key and attributes together."),
    "key_hash": ("Hash of keys", "murmur2 places keys as Kafka's clients do. A change moves later messages of a key."),
    "timestamp_type": ("Time for Kafka", "What Kafka's consumers see: when a message was created, or written here."),
    "archive": ("Archive", "on: messages are copied to the archive of the store, and none is deleted before that."),
    "archive_after_seconds": ("Archive after", "The latest time after which a message is archived."),
    "archive_retention_seconds": ("Keep archived for", "90d, 365d; none keeps them for ever."),
    "local_retention_seconds": ("Keep here for", "Of archived messages in the log; none is as Keep for."),
    "local_retention_bytes": ("Keep here at most", "Of archived messages in the log; none is as Keep at most."),
    "value_schema": (
        "Schema of values",
        "A JSON or Avro schema: tables have a column for each field. It may only grow by optional fields. Empty: none.",
    ),
    "partition_write_bytes_per_second": (
        "Write speed of a partition",
        "Bytes a second, 1M; publishers that write faster are answered later. none is no limit.",
    ),
    "partition_write_burst_bytes": (
        "Write burst of a partition",
        "What may be written at once after a pause; none is what is written in a second.",
    ),
    "kafka_configs": ("Configs of Kafka", "Set by Kafka's tools and shown to them. They change nothing here."),
    "annotations": (
        "Annotations",
        "Texts that programs keep with the topic, such as YDB's attributes. They change nothing here.",
    ),
}
# Set by the programs that they belong to.
_SHOWN_ONLY = {"kafka_configs", "annotations"}
# Typed as on the command line, by the units of the name's ending.
_UNITS = {"_seconds": SECONDS, "_bytes": BYTES, "_bytes_max": BYTES, "_bytes_per_second": BYTES}
# Of those, the ones that may be none.
_OPTIONAL = {name for name, kind in get_type_hints(TopicSettings).items() if NoneType in get_args(kind)}
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
                    ui.label(_shown(name, values[name]))
    with ui.element("div").classes("hr-muted hr-small"):
        ui.label("Created")
        parts.moment(topic.created_us)


def _units(name: str) -> Mapping[str, int] | None:
    return next((units for ending, units in _UNITS.items() if name.endswith(ending)), None)


def _shown(name: str, value: Any) -> str:
    units = _units(name)
    if units is not None:
        return amount_typed(value, units)
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
        elif (units := _units(name)) is not None:
            field = ui.input(value=amount_typed(value, units))
            self._read = lambda: _amount(label, name, field.value or "", units)
        else:
            most = PARTITIONS_MAX if name == "partitions" else None
            field = ui.number(value=value, min=1, max=most, precision=0)
            self._read = lambda: None if field.value is None else int(field.value)
        field.props(f'outlined dense options-dense aria-label="{label}"').style(style)
        self._save = ui.button("Save", on_click=self._store).props("unelevated dense padding='4px 12px'")
        self._save.set_visibility(False)
        field.on_value_change(lambda: self._save.set_visibility(self._is_changed()))

    def _is_changed(self) -> bool:
        try:
            return bool(self._read() != self._known)
        except InvalidInput:
            return True

    async def _store(self) -> None:
        with self._visit.reporting():
            value = self._read()
            if self._name == "partitions":
                await self._visit.client.alter_topic(self._topic, value)
            else:
                settings: dict[str, Any] = {self._name: value}
                await self._visit.client.alter_topic(self._topic, **settings)
            self._known = value
            self._save.set_visibility(False)
            ui.notify(f"Saved: {text.visible(self._name)} is {_shown(self._name, value)}", type="positive")


def _amount(label: str, name: str, shown: str, units: Mapping[str, int]) -> int | None:
    """What was typed; raises InvalidInput."""
    typed = shown.strip()
    return None if typed == NONE and name in _OPTIONAL else parse_amount(label, typed, units)

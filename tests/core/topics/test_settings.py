"""Topic settings: defaults, bounds, and errors that name the setting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    ANNOTATIONS_BYTES_MAX,
    ANNOTATIONS_MAX,
    MESSAGE_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    RETENTION_BYTES_MAX,
    RETENTION_SECONDS_MAX,
    WINDOW_SECONDS_MAX,
    WRITE_BYTES_MAX,
)
from headrace.core.topics.settings import CODECS, DEFAULT_SETTINGS, TopicSettings

BOUNDS = {
    "retention_seconds": (1, RETENTION_SECONDS_MAX),
    "retention_bytes": (1, RETENTION_BYTES_MAX),
    "deduplication_window_seconds": (1, WINDOW_SECONDS_MAX),
    "message_bytes_max": (1, MESSAGE_BYTES_MAX),
    "archive_after_seconds": (0, RETENTION_SECONDS_MAX),
    "archive_retention_seconds": (1, RETENTION_SECONDS_MAX),
    "local_retention_seconds": (1, RETENTION_SECONDS_MAX),
    "local_retention_bytes": (1, RETENTION_BYTES_MAX),
    "partition_write_bytes_per_second": (1, WRITE_BYTES_MAX),
    "partition_write_burst_bytes": (1, WRITE_BYTES_MAX),
}


def test_defaults_keep_everything_and_deduplicate_by_producer() -> None:
    assert TopicSettings.make() == DEFAULT_SETTINGS
    assert msgspec.to_builtins(DEFAULT_SETTINGS) == {
        "retention_seconds": None,
        "retention_bytes": None,
        "deduplication": "producer",
        "deduplication_window_seconds": 1800,
        "deduplication_window_messages": 1_000_000,
        "deduplication_scope": "topic",
        "codecs": CODECS,
        "message_bytes_max": MESSAGE_BYTES_DEFAULT,
        "key_hash": "fnv1a",
        "timestamp_type": "created",
        "archive": "off",
        "archive_after_seconds": 600,
        "archive_retention_seconds": None,
        "local_retention_seconds": None,
        "local_retention_bytes": None,
        "value_schema": None,
        "partition_write_bytes_per_second": None,
        "partition_write_burst_bytes": None,
        "kafka_configs": {},
        "annotations": {},
    }


def test_a_payload_window_is_shared_only_if_both_settings_say_so() -> None:
    shared = DEFAULT_SETTINGS.change(deduplication="payload", deduplication_scope="store")
    assert shared.shares_window
    assert not shared.change(deduplication="off").shares_window
    assert not shared.change(deduplication_scope="topic").shares_window


def test_a_burst_is_a_second_unless_it_is_given() -> None:
    assert DEFAULT_SETTINGS.change(partition_write_burst_bytes=5).write_limit is None
    limited = DEFAULT_SETTINGS.change(partition_write_bytes_per_second=100)
    assert limited.write_limit == (100, 100)
    assert limited.change(partition_write_burst_bytes=5).write_limit == (100, 5)


def test_change_keeps_what_it_does_not_name() -> None:
    first = TopicSettings.make(retention_seconds=60, deduplication="payload", codecs=["zstd", "raw"])
    second = first.change(retention_seconds=None, deduplication_scope="store")
    assert first.retention_seconds == 60
    assert first.codecs == ("zstd", "raw")
    assert second == TopicSettings.make(deduplication="payload", deduplication_scope="store", codecs=("zstd", "raw"))


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_inside_and_beyond_is_refused(name: str) -> None:
    least, most = BOUNDS[name]
    assert getattr(TopicSettings.make(**{name: least}), name) == least
    assert getattr(TopicSettings.make(**{name: most}), name) == most
    for wrong in (least - 1, most + 1, -5):
        with pytest.raises(InvalidInput) as caught:
            TopicSettings.make(**{name: wrong})
        assert caught.value.details() == {
            "field": name,
            "value": str(wrong),
            "rule": f"it must be a whole number from {least} to {most}",
        }


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("retention_seconds", "soon", "Expected `int | null`, got `str`"),
        ("retention_bytes", 1.5, "Expected `int | null`, got `float`"),
        ("message_bytes_max", None, "Expected `int`, got `null`"),
        ("message_bytes_max", True, "Expected `int`, got `bool`"),
        ("deduplication", "sometimes", "it must be producer or payload or off"),
        ("deduplication_scope", 3, "it must be topic or store"),
        ("codecs", "raw", "Expected `array`, got `str`"),
        ("codecs", [1], "Expected `str`, got `int` - at `$[0]`"),
    ],
)
def test_wrong_type_names_the_setting_the_value_and_the_rule(name: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(**{name: value})
    assert caught.value.details() == {"field": name, "value": repr(value), "rule": rule}


def test_long_wrong_value_is_shown_cut() -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(deduplication="x" * 5000)
    assert caught.value.field == "deduplication"
    assert len(caught.value.value) == 100


def test_number_beyond_every_integer_type_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(retention_bytes=10**30)
    assert caught.value.field == "retention_bytes"
    assert caught.value.value == str(10**30)


@pytest.mark.parametrize("codecs", [(), ("brotli",), ("raw", "raw"), ("raw", "")])
def test_codecs_must_be_known_and_named_once(codecs: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(codecs=codecs)
    assert caught.value.details() == {
        "field": "codecs",
        "value": repr(codecs),
        "rule": "it must be one or more of raw, gzip, zstd, lzop, each once",
    }


def test_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput) as caught:
        DEFAULT_SETTINGS.change(retention=5)
    assert (caught.value.field, caught.value.value) == ("setting", "'retention'")
    assert all(name in caught.value.rule for name in TopicSettings.__struct_fields__)


def test_settings_cannot_be_changed_in_place_and_survive_json() -> None:
    settings = TopicSettings.make(codecs=("gzip",), retention_bytes=10)
    with pytest.raises(AttributeError):
        settings.retention_bytes = 20  # type: ignore[misc]
    assert msgspec.json.decode(msgspec.json.encode(settings), type=TopicSettings) == settings
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"retention": 5}', type=TopicSettings)


def test_annotations_are_kept_by_name_and_taken_away_by_none() -> None:
    first = TopicSettings.make(annotations={"b": "2", "a": "1", "c": None})
    assert first.annotations == {"a": "1", "b": "2"}
    assert first.change(annotations={"a": None, "d": ""}).annotations == {"b": "2", "d": ""}
    assert first.change(retention_seconds=5).annotations == first.annotations


@pytest.mark.parametrize(
    "annotations",
    [
        "a=1",
        {"a": 1},
        {1: "a"},
        {str(number): "" for number in range(ANNOTATIONS_MAX + 1)},
        {"a": "x" * ANNOTATIONS_BYTES_MAX},
    ],
)
def test_annotations_are_texts_and_bounded(annotations: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(annotations=annotations)
    assert caught.value.field == "annotations"

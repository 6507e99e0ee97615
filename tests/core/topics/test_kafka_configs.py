"""Configs that only tune Kafka's storage: which are known, their bounds, and what a change leaves."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.topics.kafka_configs import KEPT_CONFIGS
from headrace.core.topics.settings import TopicSettings


def test_every_default_is_allowed() -> None:
    kept = {name: config.default for name, config in KEPT_CONFIGS.items()}
    assert TopicSettings.make(kafka_configs=kept).kafka_configs == kept


def test_a_change_keeps_what_it_does_not_name() -> None:
    first = TopicSettings.make(kafka_configs={"segment.ms": "1", "segment.bytes": " 14 ", "flush.ms": None})
    assert first.kafka_configs == {"segment.bytes": "14", "segment.ms": "1"}
    second = first.change(kafka_configs={"segment.ms": None, "preallocate": "true"})
    assert second.kafka_configs == {"preallocate": "true", "segment.bytes": "14"}
    assert first.kafka_configs == {"segment.bytes": "14", "segment.ms": "1"}


@pytest.mark.parametrize(
    ("configs", "field", "rule"),
    [
        ({"segment.bytes": "13"}, "segment.bytes", "it must be a whole number from 14 to 2147483647"),
        ({"segment.bytes": "1.5"}, "segment.bytes", "it must be a whole number from 14 to 2147483647"),
        ({"min.cleanable.dirty.ratio": "2"}, "min.cleanable.dirty.ratio", "it must be a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio", "it must be a number from 0 to 1"),
        ({"preallocate": "yes"}, "preallocate", "it must be true or false"),
        ({"segment.ms": 5}, "segment.ms", "it must be a text, or null to take it away"),
        ({"retention.ms": "5"}, "kafka_configs", "known ones are "),
        ("segment.ms=5", "kafka_configs", "it must be an object of texts, or null, by name"),
    ],
)
def test_wrong_configs_are_refused_by_name(configs: Any, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TopicSettings.make(kafka_configs=configs)
    assert caught.value.field == field
    assert caught.value.rule.startswith(rule)

"""What cursus keeps with a topic: settings of the topic, and what has no setting as annotations.

Only what is served is accepted: a policy that would do nothing is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.core.topics.settings import TopicSettings
from headrace.protocols.cursus.errors import CursusRefusal, Quoted
from headrace.protocols.cursus.messages.command import Command

IDEMPOTENT, EVENT_SOURCING, PARTITIONER = "cursus.idempotent", "cursus.event_sourcing", "cursus.partitioner"
HASH_KEY, ROUND_ROBIN = "hash_key", "round_robin"
PARTITIONS_DEFAULT: Final = 4

_HOUR_SECONDS: Final = 3600
_NAME: Final = re.compile(r"[A-Za-z0-9._=-]{1,249}")


def check_name(name: str) -> str:
    """The name of a new topic."""
    if not _NAME.fullmatch(name):
        rule = "1 to 249 ASCII letters, digits and . _ - ="
        raise CursusRefusal("invalid_topic_name", topic=Quoted(name[:300]), reason=Quoted(rule))
    return name


def settings_of(command: Command) -> dict[str, Any]:
    """The settings that a CREATE names."""
    policy = command.get("cleanup_policy") or "delete"
    if policy != "delete":
        raise CursusRefusal("unsupported_topic_policy", cleanup_policy=policy, reason=Quoted("only delete is served"))
    partitioner = command.get("partitioner") or HASH_KEY
    if partitioner not in (HASH_KEY, ROUND_ROBIN):
        raise CursusRefusal("invalid_topic_policy", partitioner=partitioner, reason=Quoted("hash_key or round_robin"))
    if (command.get("auth_policy") or "open") != "open" or command.get("read_acl") or command.get("write_acl"):
        reason = "rights belong to tokens: headrace token create"
        raise CursusRefusal("unsupported_topic_policy", auth_policy=command.get("auth_policy"), reason=Quoted(reason))
    annotations = {name: "true" for name in (IDEMPOTENT, EVENT_SOURCING) if command.flag(name.partition(".")[2])}
    if partitioner != HASH_KEY:
        annotations[PARTITIONER] = partitioner
    settings: dict[str, Any] = {}
    if annotations:
        settings["annotations"] = annotations
    if hours := command.number("retention_hours", default=0):
        settings["retention_seconds"] = hours * _HOUR_SECONDS
    if size := command.number("retention_bytes", default=0):
        settings["retention_bytes"] = size
    return settings


def has(settings: TopicSettings, annotation: str) -> bool:
    """Whether a topic was created with this."""
    return settings.annotations.get(annotation) == "true"


def partitioner_of(settings: TopicSettings) -> str:
    """What chooses the partition of a message that names none."""
    return settings.annotations.get(PARTITIONER, HASH_KEY)


def policy_of(settings: TopicSettings) -> Mapping[str, object]:
    """The policy of a topic, as METADATA and CREATE tell it."""
    return {
        "cleanup_policy": "delete",
        "partitioner": partitioner_of(settings),
        "auth_policy": "open",
        "read_acl": "",
        "write_acl": "",
        "retention_hours": -(-(settings.retention_seconds or 0) // _HOUR_SECONDS),
        "retention_bytes": settings.retention_bytes or 0,
    }

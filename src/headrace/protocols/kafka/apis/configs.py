"""Topic settings under Kafka's names: DescribeConfigs, AlterConfigs (whole and incremental), and those of CreateTopics.

Some are settings here; some can only say what is so anyway (`cleanup.policy=delete`); those that only tune Kafka's
storage are kept and shown (`core/topics/kafka_configs.py`). Other names are refused. The configs of a server are for
reading: what holds for all of its topics, and by what tools tell what it can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.topics.kafka_configs import KEPT_CONFIGS, Kind
from headrace.core.topics.settings import DEFAULT_SETTINGS, TimestampType, TopicSettings
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.named import REFUSED, split
from headrace.protocols.kafka.apis.servers.log_dirs import DIRECTORY
from headrace.protocols.kafka.apis.topic_ids import TopicLookup
from headrace.protocols.kafka.errors import code_of, message_of

TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_DELETE: Final = 1
# Where a value comes from, and of which type it is, by Kafka's numbers.
_OF_TOPIC: Final = 1
_DEFAULT: Final = 5
_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7
_KINDS: Final[dict[Kind, int]] = {"boolean": _BOOLEAN, "string": _STRING, "int": _INT, "long": _LONG, "double": 6}
_UNLIMITED: Final = "-1"


@dataclass(frozen=True, slots=True)
class _Config:
    """A setting of Kafka: which of ours it is, how a text becomes a value and back."""

    setting: str
    kind: int
    parse: Callable[[str], Any]
    show: Callable[[Any], str]


def _whole(text: str) -> int | None:
    """A number; -1 is no limit."""
    return None if text == _UNLIMITED else int(text)


def _shown(value: int | None) -> str:
    return _UNLIMITED if value is None else str(value)


def _seconds(text: str) -> int | None:
    milliseconds = _whole(text)
    return None if milliseconds is None else -(-milliseconds // 1000)


_TIMESTAMP_TYPES: Final[dict[str, TimestampType]] = {"CreateTime": "created", "LogAppendTime": "broker"}


def _timestamp_type(text: str) -> TimestampType:
    if text not in _TIMESTAMP_TYPES:
        raise ValueError(f"it must be {' or '.join(_TIMESTAMP_TYPES)}")
    return _TIMESTAMP_TYPES[text]


def _shown_timestamp_type(value: TimestampType) -> str:
    return next(text for text, ours in _TIMESTAMP_TYPES.items() if ours == value)


CONFIGS: Final = {
    "retention.ms": _Config(
        "retention_seconds", _LONG, _seconds, lambda value: _shown(None if value is None else value * 1000)
    ),
    "retention.bytes": _Config("retention_bytes", _LONG, _whole, _shown),
    "max.message.bytes": _Config("message_bytes_max", _INT, int, str),
    "message.timestamp.type": _Config("timestamp_type", _STRING, _timestamp_type, _shown_timestamp_type),
}
# What can only have this value here, of which type it is, and why.
_FIXED: Final = {
    "cleanup.policy": ("delete", _LIST, "topics are not compacted here: messages would be deleted by time instead"),
    "unclean.leader.election.enable": ("false", _BOOLEAN, "there is one replica"),
}
_ALL: Final = frozenset({*CONFIGS, *_FIXED, *KEPT_CONFIGS})
# Topics whose configs a thread describes, before there is room for the next.
_PIECE_TOPICS: Final = 100


def settings_of(configs: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """Topic settings from configs of Kafka; an error names what is not supported."""
    settings: dict[str, Any] = {}
    kept: dict[str, str] = {}
    for name, value in configs:
        if name in _FIXED:
            only, _, reason = _FIXED[name]
            if value not in (None, only):
                raise InvalidInput(name, repr(value)[:100], f"it can only be {only}: {reason}")
        elif name not in _ALL:
            raise InvalidInput("config", repr(name)[:100], f"known ones are {', '.join(sorted(_ALL))}")
        elif value is None:
            continue
        elif name in KEPT_CONFIGS:
            kept[name] = KEPT_CONFIGS[name].checked(name, value)
        else:
            try:
                settings[CONFIGS[name].setting] = CONFIGS[name].parse(value)
            except ValueError as error:
                rule = str(error) if CONFIGS[name].kind == _STRING else "it must be a whole number"
                raise InvalidInput(name, repr(value)[:100], rule) from None
    return settings | ({"kafka_configs": kept} if kept else {})


async def describe_configs(call: Call, request: Any) -> dict[str, Any]:
    """The settings of topics and of this server. What is named more than once is described once."""
    wanted: dict[tuple[int, str], set[str]] = {}
    for each in request.resources:
        every = _OF_SERVER if each.resource_type == _BROKER else _ALL
        place, keys = (each.resource_type, each.resource_name), each.configuration_keys or every
        known = wanted.setdefault(place, set())
        # Often the same many times, and then all is known already.
        if len(known) < len(every):
            known.update(keys)
    await call.hold(len(wanted) * CONFIGS_ELEMENTS, (name for _, name in wanted))
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    places, results = list(wanted), list[dict[str, Any]]()
    for first in range(0, len(places), _PIECE_TOPICS):
        piece = {place: wanted[place] for place in places[first : first + _PIECE_TOPICS]}
        described = await call.parts.bridge.call(_all_described, call, lookup, piece)
        await call.hold(sum(1 for each in described for config in each["configs"] if not config["is_default"]))
        results += described
    return {"results": results}


def _all_described(call: Call, lookup: TopicLookup, wanted: dict[tuple[int, str], set[str]]) -> list[dict[str, Any]]:
    return [_described(call, lookup, kind, name, keys) for (kind, name), keys in wanted.items()]


def _described(call: Call, lookup: TopicLookup, kind: int, name: str, keys: set[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "resource_type": kind,
        "resource_name": name,
        "configs": [],
    }
    try:
        if kind == TOPIC:
            call.principal.require("describe_topic", name)
            shown = shown_configs(lookup.reader(name).settings)
        else:
            call.principal.require("whoami")
            shown = _server_configs(call, kind, name)
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    return answer | {"configs": [each for each in shown if each["name"] in keys]}


def _server_configs(call: Call, kind: int, name: str) -> list[dict[str, Any]]:
    """The configs of this server; those that all servers have from their cluster are none."""
    if kind != _BROKER:
        raise InvalidInput("resource type", str(kind), f"configs are those of topics ({TOPIC}) and servers ({_BROKER})")
    own_id = str(call.parts.nodes.own_id)
    if name not in ("", own_id):
        raise InvalidInput("resource name", repr(name)[:100], f"this server has the id {own_id}: ask the other one")
    if not name:
        return []
    defaults = call.parts.bridge.broker.topics.defaults
    of_topics = {each["name"]: each["value"] for each in shown_configs(defaults.settings())}
    values = _SERVER_VALUES | {
        "auto.create.topics.enable": str(call.parts.settings.auto_create_topics).lower(),
        "broker.id": own_id,
        "node.id": own_id,
        "num.partitions": str(defaults.partitions),
    }
    values |= {shown: of_topics[name] for name, shown in _SERVER_DEFAULTS.items()}
    return [_entry(name, value, _STRING, is_fixed=True) for name, value in values.items()]


def shown_configs(settings: TopicSettings) -> list[dict[str, Any]]:
    """The settings of a topic under Kafka's names."""
    changed = {
        name: _entry(name, config.show(value), config.kind, _OF_TOPIC)
        for name, config in CONFIGS.items()
        if (value := getattr(settings, config.setting)) != _default(config)
    }
    for name, given in settings.kafka_configs.items():
        changed[name] = _entry(name, given, _KINDS[KEPT_CONFIGS[name].kind], _OF_TOPIC)
    return list((_DEFAULTS | changed).values())


def _entry(name: str, value: str, kind: int, source: int = _DEFAULT, is_fixed: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": is_fixed,
        "is_default": source == _DEFAULT,
        "config_source": source,
        "config_type": kind,
    }


def _default(config: _Config) -> Any:
    return getattr(DEFAULT_SETTINGS, config.setting)


# What topics show whose settings nobody changed: the same entries in every answer.
_DEFAULTS: Final = {
    **{name: _entry(name, config.show(_default(config)), config.kind) for name, config in CONFIGS.items()},
    **{name: _entry(name, kept.default, _KINDS[kept.kind]) for name, kept in KEPT_CONFIGS.items()},
    **{name: _entry(name, only, kind, is_fixed=True) for name, (only, kind, _) in _FIXED.items()},
}
# What a topic with its configs counts in an answer, beside those that were changed; shared entries take a quarter.
CONFIGS_ELEMENTS: Final = 1 + -(-len(_DEFAULTS) // 4)


# The configs of a server: those that are always the same, and what configs of topics are called as defaults.
_SERVER_VALUES: Final = {
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "inter.broker.protocol.version": "4.1-IV1",
    "log.dirs": DIRECTORY,
    "process.roles": "broker,controller",
}
_SERVER_DEFAULTS: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
_OF_SERVER: Final = frozenset(
    {
        *_SERVER_VALUES,
        *_SERVER_DEFAULTS.values(),
        "auto.create.topics.enable",
        "broker.id",
        "node.id",
        "num.partitions",
    }
)


async def incremental_alter_configs(call: Call, request: Any) -> dict[str, Any]:
    """Change settings of topics; those that are not named stay."""
    return await _alter(call, request, _changed)


async def alter_configs(call: Call, request: Any) -> dict[str, Any]:
    """Replace the settings of topics that have a name in Kafka: those that are not named get their defaults."""
    return await _alter(call, request, _replaced)


def _changed(configs: Any) -> dict[str, Any]:
    if any(each.config_operation not in (_SET, _DELETE) for each in configs):
        raise InvalidInput("config operation", "append or subtract", "configs can be set or deleted")
    settings = settings_of((each.name, each.value) for each in configs if each.config_operation == _SET)
    deleted = [each.name for each in configs if each.config_operation == _DELETE]
    settings |= {CONFIGS[name].setting: _default(CONFIGS[name]) for name in deleted if name in CONFIGS}
    taken: dict[str, None] = dict.fromkeys(name for name in deleted if name in KEPT_CONFIGS)
    return settings | ({"kafka_configs": settings.get("kafka_configs", {}) | taken} if taken else {})


def _replaced(configs: Any) -> dict[str, Any]:
    defaults = {config.setting: _default(config) for config in CONFIGS.values()}
    settings = settings_of((each.name, each.value) for each in configs)
    kept = dict.fromkeys(KEPT_CONFIGS) | settings.get("kafka_configs", {})
    return defaults | settings | {"kafka_configs": kept}


async def _alter(call: Call, request: Any, settings_for: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    single, repeated = split(request.resources, lambda each: (each.resource_type, each.resource_name))
    await call.hold(len(single) + len(repeated), (each.resource_name for each in request.resources))
    work = call.parts.bridge.call
    answers = [{**REFUSED, "resource_type": kind, "resource_name": name} for kind, name in repeated]
    answers += [await work(_altered, call, each, settings_for, request.validate_only) for each in single]
    return {"responses": answers}


def _altered(
    call: Call, resource: Any, settings_for: Callable[[Any], dict[str, Any]], is_trial: bool
) -> dict[str, Any]:
    answer = {
        "error_code": ErrorCode.none,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    try:
        if resource.resource_type != TOPIC:
            raise InvalidInput("resource type", str(resource.resource_type), "only configs of topics can be changed")
        name = resource.resource_name
        with call.principal.recording():
            call.principal.require("alter_topic", name)
            settings = settings_for(resource.configs)
            TopicSettings.make(**settings)
            if is_trial:
                call.principal.forget_changes()
                call.parts.bridge.broker.reader(name)
            else:
                call.parts.bridge.broker.alter_topic(name, **settings)
    except HeadraceError as error:
        code = ErrorCode.invalid_config if isinstance(error, InvalidInput) else code_of(error)
        return answer | {"error_code": code, "error_message": message_of(error)}
    return answer

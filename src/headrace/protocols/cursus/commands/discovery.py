"""What a client asks before it works: versions and features, topics and their offsets, whom to ask about a group.

Every server of a store serves every topic and group, so clients are sent to the address that they have reached, or to
the advertised one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from headrace.broker.read.topic_reader import TopicReader
from headrace.protocols.cursus.call import CursusCall, Negotiated, check_partition, topic_of
from headrace.protocols.cursus.commands.kept import policy_of
from headrace.protocols.cursus.errors import ERROR_CLASSES, CursusRefusal, Quoted
from headrace.protocols.cursus.messages.command import Command

VERSION: Final = 1
STRUCTURED_ERRORS: Final = "structured_errors_v1"
FEATURES: Final = (
    "event_sourcing_v1", "idempotent_producer_v1", "offset_resume_v1", "stream_control_v1", STRUCTURED_ERRORS,
)  # fmt: skip


def protocol_info(_: Command, __: Negotiated) -> str:
    """Versions and features."""
    versions = f"min_version={VERSION} max_version={VERSION} default_version={VERSION}"
    classes = ",".join(ERROR_CLASSES)
    return f"OK protocol=cursus {versions} features={','.join(FEATURES)} error_classes={classes}"


def negotiate(command: Command, negotiated: Negotiated) -> str:
    """Agree on the version and on features, for the rest of the connection."""
    requested = command.get("version")
    if not requested:
        raise CursusRefusal("missing_protocol_version", command=command.name)
    if requested != str(VERSION):
        code = "UNSUPPORTED_PROTOCOL_VERSION" if requested.lstrip("-").isdecimal() else "invalid_protocol_version"
        raise CursusRefusal(code, requested=requested[:100], min=VERSION, max=VERSION)
    wanted = [each for each in command.get("features").split(",") if each]
    if wanted == ["*"]:
        wanted = list(FEATURES)
    enabled = sorted({each for each in wanted if each in FEATURES})
    unsupported = sorted({each[:100] for each in wanted if each not in FEATURES})[:100]
    if unsupported and command.flag("require_features"):
        raise CursusRefusal("UNSUPPORTED_FEATURE", features=",".join(unsupported))
    negotiated.has_structured_errors = STRUCTURED_ERRORS in enabled
    return f"OK protocol_version={VERSION} enabled={','.join(enabled)} unsupported={','.join(unsupported)}"


def authenticated(command: Command, _: Negotiated) -> str:
    """The token of an AUTH was accepted."""
    return f"OK principal={command.get('principal')} authenticated=true"


async def list_topics(call: CursusCall, _: Command) -> str:
    """The topics that the caller may know, as far as their names can be told."""
    call.principal.require("list_topics")
    names = await call.work(call.broker.list_topics)
    visible = await call.work(lambda: [name for name in names if is_plain(name) and _may_know(call, name)])
    return await told_names(call, "topics", visible)


async def told_names(call: CursusCall, what: str, names: Sequence[str]) -> str:
    """A list of names."""
    await call.hold(len(names), sum(map(len, names)))
    return f"OK count={len(names)} {what}={','.join(names)}"


async def metadata(call: CursusCall, command: Command) -> str:
    """The partitions of a topic, each at this server."""
    topic = topic_of(command)
    if not _may_know(call, topic):
        call.require("describe_topic", topic)
    reader = await call.reader(topic)
    count = reader.partitions
    await call.hold(count)
    host, port = call.address
    leaders, epochs = ",".join([f"{host}:{port}"] * count), ",".join("0" * count)
    policy = " ".join(f"{name}={value}" for name, value in policy_of(reader.settings).items())
    return f"OK topic={reader.name} partitions={count} leaders={leaders} epochs={epochs} {policy}"


async def describe(call: CursusCall, command: Command) -> str:
    """A topic with where its partitions end."""
    topic = topic_of(command)
    call.require("describe_topic", topic)
    reader = await call.reader(topic)
    await call.hold(reader.partitions)
    return await call.work(_described, reader, f"{call.address[0]}:{call.address[1]}")


def _described(reader: TopicReader, leader: str) -> str:
    here = {"leader": leader, "replicas": [leader], "isr": [leader]}
    ends = reader.offsets().end.tolist()
    partitions = [{"id": number, **here, "leo": end, "hwm": end} for number, end in enumerate(ends)]
    policy = {name: value for name, value in policy_of(reader.settings).items() if value}
    return json.dumps({"status": "OK", "topic": reader.name, "partitions": partitions, "policy": policy})


async def list_offsets(call: CursusCall, command: Command) -> str:
    """Where partitions begin and end."""
    topic = topic_of(command)
    call.require("offsets", topic)
    reader = await call.reader(topic)
    partition = None
    if command.get("partition"):
        partition = command.number("partition")
        check_partition(reader, partition)
    await call.hold(1 if partition is not None else reader.partitions)
    return await call.work(_told_offsets, reader, partition)


def _told_offsets(reader: TopicReader, partition: int | None) -> str:
    bounds = reader.offsets().by_partition()
    if partition is not None:
        bounds = {partition: bounds[partition]}
    told = ",".join(
        f"P{number}:earliest={start}:latest={end}:leo={end}:hwm={end}" for number, (start, end) in bounds.items()
    )
    return f"OK topic={reader.name} partitions={reader.partitions} offsets={told}"


async def find_coordinator(call: CursusCall, command: Command) -> str:
    """This server, whatever is asked for."""
    if command.get("transactional_id"):
        kind = "transaction"
    elif command.get("group"):
        kind = "group"
    else:
        raise CursusRefusal("missing_coordinator_key", command=command.name)
    host, port = call.address
    return f"OK coordinator_id={host}:{port} coordinator_type={kind} host={host} port={port}"


async def not_served(_: CursusCall, command: Command) -> str:
    """A command of the protocol that this server does not have."""
    raise CursusRefusal("unknown_command", command=command.name, reason=Quoted("this server does not serve it"))


def _may_know(call: CursusCall, topic: str) -> bool:
    """Whether the caller may read a topic or write to it; one that may neither is told nothing of it."""
    return call.principal.may("describe_topic", topic) or call.principal.may("publish", topic)


def is_plain(name: str) -> bool:
    """Whether a name can be told in a list."""
    return "," not in name and not any(each.isspace() for each in name)

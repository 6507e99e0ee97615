"""One operation is called alike everywhere: the same name, fields, order and defaults in Broker, Client, wire and HTTP.

What differs on purpose stands in the tables here, with its reason. Old names work for one release and warn.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa
import pytest

from headrace import Broker, Client
from headrace.protocols.http.routes import groups, members, topics
from headrace.testing import embedded
from headrace.wire import operations as wire

# The parameter of the client by which a method of the broker goes, where one is the other made comfortable.
COMFORT = {
    # A client gives a time as a datetime, below it is microseconds.
    ("offset_at", "time"): "time_us",
    ("offsets_at", "time"): "time_us",
    ("trim_topic", "before"): "before_us",
    # A client says where to go in any way, and looks up the offsets.
    ("seek", "to"): "offsets",
    # A client stages a stream of batches, the broker one at a time.
    ("stage", "batches"): "batch",
}
# Old parameters of the client, which warn.
OLD = {("publish_staged", "number"), ("publish_staged", "writer")}
OLD_METHODS = {"commit"}
# A broker is closed with the threads it has, and waits for room that a client never sees.
ONLY_IN_BROKER = {("close", "stop_seconds"), ("publish_staged", "timeout_seconds")}
# How the wire spells a parameter of the broker: a topic is always `topic` there, and a commit key is two fields.
ON_THE_WIRE = {"name": ["topic"], "commit_key": ["writer", "number", "fingerprint"]}
# An operation of the wire that is no method of the broker: who calls is known to servers alone.
ONLY_ON_THE_WIRE = {
    "whoami",
    "list_clients",
    "list_tokens",
    "create_token",
    "rotate_token",
    "revoke_token",
    "list_audit",
    "describe_process",
}
# A client from before acknowledgements does not send it, and gives up partitions at once.
OLDER_DEFAULTS = {("join_group", "max_poll_seconds")}
# What a client says for those who look at it, and the broker need not know.
FOR_OPERATORS = {("heartbeat", "idle_seconds")}
# Rights are checked on a topic, so that also listing all has one.
IGNORED_FIELDS = {
    (name, "topic")
    for name in (
        "list_topics",
        "list_servers",
        "list_pipelines",
        "describe_health",
        "describe_settings",
        "check_store",
        "last_store_check",
        "describe_topics",
        "commit_transaction",
    )
}

ROWS = pa.record_batch({"value": [b"a", b"b"]})


@pytest.fixture
def client() -> Iterator[Client]:
    with embedded() as made:
        made.create_topic("t")
        yield made


def methods_of(kind: type) -> set[str]:
    return {name for name, member in vars(kind).items() if not name.startswith("_") and inspect.isfunction(member)}


def parameters_of(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())[1:]


SHARED = sorted((methods_of(Broker) & methods_of(Client)) - OLD_METHODS)


def test_most_of_a_client_is_of_the_broker() -> None:
    assert len(SHARED) >= 20
    # It reads by streams, and makes what sends and receives.
    assert methods_of(Client) - methods_of(Broker) == {
        "consumer",
        "create_token",
        "describe_process",
        "follow",
        "list_audit",
        "list_clients",
        "list_tokens",
        "producer",
        "read",
        "revoke_token",
        "rotate_token",
        "scan",
        "scan_ranges",
        "table",
        "transaction",
        "to_arrow",
        "whoami",
    }


@pytest.mark.parametrize("name", SHARED)
def test_client_and_broker_agree(name: str) -> None:
    of_client = [
        (COMFORT.get((name, each.name), each.name), each.default)
        for each in parameters_of(getattr(Client, name))
        if (name, each.name) not in OLD
    ]
    of_broker = [
        (each.name, each.default)
        for each in parameters_of(getattr(Broker, name))
        if (name, each.name) not in ONLY_IN_BROKER
    ]
    assert of_client == of_broker


@pytest.mark.parametrize("kind", wire.OPERATIONS.values(), ids=lambda kind: kind.__name__)
def test_wire_and_broker_agree(kind: type[wire.Operation[Any]]) -> None:
    """The edge calls the method of the broker with the fields in their order."""
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower()
    assert name == (kind.method or wire.name_of(kind))
    if name in ONLY_ON_THE_WIRE:
        return
    fields = {each.name: each.default for each in msgspec.structs.fields(kind)}
    left_out = IGNORED_FIELDS | FOR_OPERATORS
    fields = {field: default for field, default in fields.items() if (name, field) not in left_out}
    parameters = [each for each in parameters_of(getattr(Broker, name)) if (name, each.name) not in ONLY_IN_BROKER]
    assert list(fields) == [field for each in parameters for field in ON_THE_WIRE.get(each.name, [each.name])]
    defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    for field, default in fields.items():
        if default is not msgspec.NODEFAULT and field in defaults and (name, field) not in OLDER_DEFAULTS:
            assert default == defaults[field], field


@pytest.mark.parametrize("name", SHARED)
def test_client_returns_what_the_wire_answers(name: str) -> None:
    kind = next((kind for kind in wire.OPERATIONS.values() if (kind.method or wire.name_of(kind)) == name), None)
    if kind is not None:
        assert get_type_hints(getattr(Client, name))["return"] == wire.answer_type(kind)


def test_tags_of_the_first_release_are_kept() -> None:
    assert wire.OPERATIONS["commit"] is wire.CommitOffsets
    assert wire.OPERATIONS["join"] is wire.JoinGroup
    assert wire.OPERATIONS["leave"] is wire.LeaveGroup


@pytest.mark.parametrize(
    ("body", "method"),
    [
        (topics.TopicIn, Broker.create_topic),
        (groups.GroupIn, Broker.register_group),
        (groups.CommitIn, Broker.commit_offsets),
        (members.JoinIn, Broker.join_group),
    ],
)
def test_bodies_of_http_and_broker_agree(body: type[msgspec.Struct], method: Callable[..., Any]) -> None:
    """What is in the path of a request (topic, group, member) need not be in its body."""
    fields = {each.name: each.default for each in msgspec.structs.fields(body)}
    parameters = {each.name: each.default for each in parameters_of(method)}
    assert [name for name in parameters if name in fields] == list(fields)
    assert set(parameters) - set(fields) <= {"topic", "group", "member"}
    for name, default in fields.items():
        if default is not msgspec.NODEFAULT:
            assert default == parameters[name], name


def test_consumer_of_a_fixed_group_commits_by_its_index(client: Client) -> None:
    client.register_group("t", "g", consumers=1)
    client.commit_offsets("t", "g", {0: 0}, member=0)
    assert client.committed("t", "g") == {0: 0}


def test_stage_makes_a_name(client: Client) -> None:
    one, two = client.stage("t", [ROWS]), client.stage("t", [ROWS])
    assert one.stage != two.stage
    assert client.drop_stages("t", [one.stage, two.stage]) == 2

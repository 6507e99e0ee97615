"""Of a request with several changes the audit log has those that were done, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.edge import audit
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, ALTER_CONFIGS = 3, 19, 20, 21, 33
CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 37, 44, 47
TOPIC_RESOURCE = 2

Made = tuple[int, int, dict[str, Any]]


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as raw:
        yield raw


def create(name: str, is_trial: bool = False, **more: Any) -> Made:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} | more
    return CREATE_TOPICS, 5, {"topics": [topic], "timeout": 1000, "validate_only": is_trial}


def delete(name: str) -> Made:
    return DELETE_TOPICS, 5, {"topic_names": [name], "timeout": 1000}


def delete_records(name: str, offset: int) -> Made:
    partitions = [{"partition_index": 0, "offset": offset}]
    return DELETE_RECORDS, 1, {"topics": [{"name": name, "partitions": partitions}], "timeout": 1000}


def alter(name: str, value: str, is_trial: bool = False) -> Made:
    configs = [{"name": "retention.ms", "value": value}]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs}
    return ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": is_trial}


def alter_some(name: str, value: str, is_trial: bool = False) -> Made:
    configs = [{"name": "retention.ms", "value": value, "config_operation": 0}]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs}
    return INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [resource], "validate_only": is_trial}


def grow(name: str, count: int, is_trial: bool = False) -> Made:
    topic = {"name": name, "count": count, "assignments": None}
    return CREATE_PARTITIONS, 1, {"topics": [topic], "timeout": 1000, "validate_only": is_trial}


def forget(name: str, partition: int) -> Made:
    topics = [{"name": name, "partitions": [{"partition_index": partition}]}]
    return OFFSET_DELETE, 0, {"group_id": "audited", "topics": topics}


def together(*made: Made) -> Made:
    """One request with the changes of several."""
    key, version, fields = made[0]
    array = next(name for name, value in fields.items() if isinstance(value, list))
    return key, version, fields | {array: [each for _, _, given in made for each in given[array]]}


# What was refused first, or failed, and what was done after it.
REQUESTS: dict[str, tuple[Made, set[tuple[str, str]]]] = {
    "create": (together(create("old"), create("new")), {("create_topic", "new")}),
    "create, only to try": (create("new", is_trial=True), set()),
    "delete": (together(delete("missing"), delete("old")), {("delete_topic", "old")}),
    "records": (
        together(delete_records("missing", 0), delete_records("empty", 9), delete_records("old", 1)),
        {("delete_messages", "old")},
    ),
    "no records": (delete_records("empty", 9), set()),
    "configs": (
        together(alter("missing", "60000"), alter("empty", "soon"), alter("old", "60000")),
        {("alter_topic", "old")},
    ),
    "configs, only to try": (alter("old", "60000", is_trial=True), set()),
    "some configs": (together(alter_some("missing", "60000"), alter_some("old", "60000")), {("alter_topic", "old")}),
    "some configs, only to try": (alter_some("old", "60000", is_trial=True), set()),
    "partitions": (together(grow("missing", 5), grow("empty", 1), grow("old", 5)), {("alter_topic", "old")}),
    "partitions, only to try": (grow("old", 5, is_trial=True), set()),
    "offsets": (together(forget("missing", 0), forget("empty", 9), forget("old", 0)), {("delete_group", "old")}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_was_not_done_is_not_recorded(site: Site, client: RawClient, name: str) -> None:
    for topic in site.broker.list_topics():
        site.broker.delete_topic(topic)
    for topic in ("old", "empty"):
        site.broker.create_topic(topic, 2)
        site.broker.register_group(topic, "audited")
    site.broker.publish("old", pa.record_batch({"value": pa.array([b"x"] * 20, pa.binary())}))
    site.broker.commit_offsets("old", "audited", {0: 1})
    (key, version, fields), done = REQUESTS[name]
    # The log keeps a number of entries: what is new is found by identity, not by how many there are.
    before = audit.recent(1000)
    known = set(map(id, before))
    client.call(key, version, **fields)
    told = [each for each in audit.recent(1000) if id(each) not in known]
    assert {(each["operation"], each["topic"]) for each in told if each["event"] == "done"} == done

"""docs/kafka.md has the APIs and versions that are served."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.core.limits import PARTITIONS_IN_STORE, TOPICS_IN_STORE
from headrace.protocols.kafka.apis.records.fetch_sessions import PARTITIONS_MAX, SESSIONS_MAX
from headrace.protocols.kafka.apis.table import APIS
from headrace.protocols.kafka.apis.versions import api_versions
from headrace.protocols.kafka.messages.schema import request_schema, response_schema

DOCS = Path(__file__).parents[4] / "docs" / "kafka.md"


def spelled(versions: range) -> str:
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first} to {last}"


def test_the_table_for_people_is_that_of_the_code() -> None:
    part = DOCS.read_text().split("## APIs", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([A-Z]\w+(?:, \w+)*) \| ([\d to,]+) \|", part, re.MULTILINE)
    told: dict[str, str] = {}
    for names, versions in rows:
        given = versions.split(", ")
        every = given * len(names.split(", ")) if len(given) == 1 else given
        told |= dict(zip(names.split(", "), every, strict=True))
    assert told == {api.name: spelled(api.versions) for api in APIS.values()}


def test_the_limits_for_people_are_those_of_the_code() -> None:
    part = DOCS.read_text().split("| elements | APIs |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| ([\d,]+) \| ([\w, ]+) \|$", part, re.MULTILINE)
    told = {name: int(count.replace(",", "")) for count, names in rows for name in names.split(", ")}
    assert told == {api.name: api.elements_max for api in APIS.values()}
    remark = re.search(r"at most ([\d,]+) of ([\d,]+) partitions together, half of both", DOCS.read_text())
    assert remark is not None
    assert [int(each.replace(",", "")) for each in remark.groups()] == [SESSIONS_MAX, PARTITIONS_MAX]


def test_the_limits_are_enough_for_all_of_a_store() -> None:
    limits = {api.name: api.elements_max for api in APIS.values()}
    everything = PARTITIONS_IN_STORE + TOPICS_IN_STORE
    assert all(limits[name] >= everything for name in ("Fetch", "ListOffsets", "OffsetCommit", "DeleteRecords"))
    assert limits["Produce"] >= 2 * TOPICS_IN_STORE
    assert limits["Metadata"] >= TOPICS_IN_STORE


def test_every_version_has_a_schema_and_is_told_to_clients() -> None:
    for key, api in APIS.items():
        for version in api.versions:
            assert request_schema(key, version) is not None and response_schema(key, version) is not None
    told = {each["api_key"]: each["max_version"] for each in api_versions()["api_keys"]}
    assert told == {key: api.versions[-1] for key, api in APIS.items()}

"""Groups over HTTP: registered, described with their lag, moved, committed, deleted."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.protocols.http.site import JSON_BODY, checked, create_topic, path_of, problem, publish


def register(client: httpx.Client, topic: str, group: str, **values: Any) -> dict[str, Any]:
    return checked(client.put(path_of("topics", topic, "groups", group), json=values), 200)


def describe(client: httpx.Client, topic: str, group: str) -> dict[str, Any]:
    return checked(client.get(path_of("topics", topic, "groups", group)), 200)


def commit(client: httpx.Client, topic: str, group: str, offsets: dict[int, int], **more: Any) -> httpx.Response:
    listed = [{"partition": partition, "offset": offset} for partition, offset in offsets.items()]
    return client.post(path_of("topics", topic, "groups", group, "offsets"), json={"offsets": listed, **more})


def committed(client: httpx.Client, topic: str, group: str) -> dict[int, int]:
    answer = checked(client.get(path_of("topics", topic, "groups", group, "offsets")), 200)
    return {position["partition"]: position["offset"] for position in answer["offsets"]}


def seek(client: httpx.Client, topic: str, group: str, **body: Any) -> httpx.Response:
    return client.post(path_of("topics", topic, "groups", group, "seek"), json=body)


def test_a_group_is_registered_listed_described_and_deleted(client: httpx.Client) -> None:
    create_topic(client, "groups-life", 2)
    made = register(client, "groups-life", "billing", consumers=2, important=True)
    assert (made["name"], made["consumers"], made["important"]) == ("billing", 2, True)
    assert made["members"] == [{"name": "0", "partitions": [0]}, {"name": "1", "partitions": [1]}]
    register(client, "groups-life", "audit")
    path = path_of("topics", "groups-life", "groups")
    assert checked(client.get(path), 200) == {"groups": ["audit", "billing"]}
    assert describe(client, "groups-life", "billing") == made
    assert client.delete(path + "/billing").status_code == 204
    assert checked(client.get(path), 200) == {"groups": ["audit"]}
    problem(client.get(path + "/billing"), 404, "group_not_found")
    problem(client.delete(path + "/billing"), 404, "group_not_found")


def test_registering_again_keeps_offsets_and_changes_the_size(client: httpx.Client) -> None:
    create_topic(client, "groups-again", 2)
    publish(client, "groups-again", "a", "b", partition=1)
    first = register(client, "groups-again", "g", consumers=1)
    assert commit(client, "groups-again", "g", {1: 2}).status_code == 204
    again = register(client, "groups-again", "g", consumers=2)
    assert again["generation"] > first["generation"]
    assert committed(client, "groups-again", "g") == {1: 2}


def test_lag_is_reported_in_messages_and_seconds_by_partition_and_in_total(client: httpx.Client) -> None:
    create_topic(client, "groups-lag", 2)
    register(client, "groups-lag", "g", consumers=1)
    publish(client, "groups-lag", "a", "b", "c", partition=0)
    publish(client, "groups-lag", "d", partition=1)
    time.sleep(0.02)
    commit(client, "groups-lag", "g", {0: 2, 1: 1})
    found = describe(client, "groups-lag", "g")
    zero, one = found["partitions"]
    assert (zero["position"], zero["committed"], zero["end_offset"], zero["lag_messages"]) == (2, 2, 3, 1)
    assert (one["position"], one["lag_messages"], one["lag_seconds"]) == (1, 0, 0.0)
    assert found["lag_messages"] == 1
    assert found["lag_seconds"] == zero["lag_seconds"] >= 0.02


@pytest.mark.parametrize(("read_from", "expected"), [("earliest", {}), ("latest", {0: 3})])
def test_a_new_group_starts_where_asked(client: httpx.Client, read_from: str, expected: dict[int, int]) -> None:
    topic = f"groups-from-{read_from}"
    create_topic(client, topic)
    publish(client, topic, "a", "b", "c")
    register(client, topic, "g", read_from=read_from)
    assert committed(client, topic, "g") == expected


def test_a_new_group_begins_at_a_time(client: httpx.Client) -> None:
    create_topic(client, "groups-time")
    publish(client, "groups-time", "old")
    time.sleep(0.01)
    between_us = time.time_ns() // 1000
    publish(client, "groups-time", "new")
    register(client, "groups-time", "g", read_from=between_us)
    assert committed(client, "groups-time", "g") == {0: 1}


def test_commits_never_move_back_and_seeking_does(client: httpx.Client) -> None:
    create_topic(client, "groups-seek", 2)
    publish(client, "groups-seek", "a", "b", "c", partition=0)
    publish(client, "groups-seek", "d", partition=1)
    register(client, "groups-seek", "g")
    commit(client, "groups-seek", "g", {0: 3})
    commit(client, "groups-seek", "g", {0: 1})
    assert committed(client, "groups-seek", "g") == {0: 3}
    before = describe(client, "groups-seek", "g")["generation"]
    moved = checked(seek(client, "groups-seek", "g", offsets=[{"partition": 0, "offset": 1}]), 200)
    assert moved == {"offsets": [{"partition": 0, "offset": 1}]}
    assert describe(client, "groups-seek", "g")["generation"] > before
    checked(seek(client, "groups-seek", "g", to="latest"), 200)
    assert committed(client, "groups-seek", "g") == {0: 3, 1: 1}
    checked(seek(client, "groups-seek", "g", to="earliest"), 200)
    assert committed(client, "groups-seek", "g") == {0: 0, 1: 0}


def test_a_group_is_moved_to_a_time(client: httpx.Client) -> None:
    create_topic(client, "groups-seek-time", 2)
    publish(client, "groups-seek-time", "a", "b", partition=0)
    time.sleep(0.01)
    between_us = time.time_ns() // 1000
    publish(client, "groups-seek-time", "c", partition=0)
    register(client, "groups-seek-time", "g")
    checked(seek(client, "groups-seek-time", "g", to=between_us), 200)
    assert committed(client, "groups-seek-time", "g") == {0: 2, 1: 0}


def test_what_cannot_be_is_refused(client: httpx.Client) -> None:
    create_topic(client, "groups-bad")
    register(client, "groups-bad", "fixed", consumers=1)
    group = path_of("topics", "groups-bad", "groups", "fixed")
    problem(client.get(path_of("topics", "nowhere", "groups")), 404, "topic_not_found")
    problem(client.put(path_of("topics", "nowhere", "groups", "g"), json={}), 404, "topic_not_found")
    problem(client.put(group, json={"consumers": 0}), 422, "invalid_input")
    problem(client.put(group, json={"consumers": "two"}), 422, "invalid_input")
    problem(client.put(group, json={"consummers": 2}), 422, "invalid_input")
    problem(client.put(group, json={"read_from": "middle"}), 422, "invalid_input")
    problem(client.put(group, content=b"{", headers=JSON_BODY), 422, "invalid_input")
    problem(client.put(group + "/members/me", json={}), 409, "group_size_conflict")
    problem(seek(client, "groups-bad", "fixed"), 422, "invalid_input")
    problem(seek(client, "groups-bad", "fixed", to="latest", offsets=[]), 422, "invalid_input")
    problem(seek(client, "groups-bad", "fixed", offsets=[{"partition": 3, "offset": 0}]), 404, "partition_not_found")
    problem(seek(client, "groups-bad", "fixed", offsets=[{"partition": 0, "offset": 9}]), 422, "offset_out_of_range")
    problem(seek(client, "groups-bad", "none", to="latest"), 404, "group_not_found")
    twice = [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 0}]
    problem(seek(client, "groups-bad", "fixed", offsets=twice), 422, "invalid_input")
    problem(commit(client, "groups-bad", "fixed", {0: 1}), 422, "offset_out_of_range")
    problem(commit(client, "groups-bad", "fixed", {0: 0}, member="7"), 404, "member_not_found")
    problem(commit(client, "groups-bad", "fixed", {0: 0}, generation=99), 409, "stale_generation")
    problem(commit(client, "groups-bad", "none", {0: 0}), 404, "group_not_found")

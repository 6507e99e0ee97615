"""Members over HTTP: they join, stay, leave, and fetch what is theirs, each partition in its turn."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from headrace.core.messages import READ_SCHEMA
from headrace.protocols.http.formats import ARROW
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.broker.clock import SettableClock
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem, publish


def join(client: httpx.Client, topic: str, group: str, member: str, seconds: float = 30.0) -> dict[str, Any]:
    path = path_of("topics", topic, "groups", group, "members", member)
    return checked(client.put(path, json={"session_timeout_seconds": seconds}), 200)


def fetch(client: httpx.Client, topic: str, group: str, member: str, **query: Any) -> dict[str, Any]:
    return checked(ask(client, topic, group, member, **query), 200)


def ask(client: httpx.Client, topic: str, group: str, member: str, **query: Any) -> httpx.Response:
    return client.get(path_of("topics", topic, "groups", group, "members", member, "messages"), params=query)


def values(answer: dict[str, Any]) -> list[str]:
    return [message["value"] for message in answer["messages"]]


def test_members_share_the_partitions_and_hear_of_changes(client: httpx.Client) -> None:
    create_topic(client, "members-share", 4)
    alone = join(client, "members-share", "g", "a")
    assert (alone["group"], alone["member"], alone["partitions"]) == ("g", "a", [0, 1, 2, 3])
    second = join(client, "members-share", "g", "b")
    assert second["partitions"] == []
    path = path_of("topics", "members-share", "groups", "g", "members")
    heard = checked(client.post(f"{path}/a/heartbeat"), 200)
    assert (heard["partitions"], heard["revoking"]) == ([0, 1], [2, 3])
    assert heard["generation"] == second["generation"]
    held = {"generation": heard["generation"], "partitions": heard["partitions"]}
    assert checked(client.post(f"{path}/a/heartbeat", json=held), 200)["revoking"] == []
    assert checked(client.post(f"{path}/b/heartbeat"), 200)["partitions"] == [2, 3]
    problem(client.post(f"{path}/a/heartbeat", json={"partitions": [0]}), 422, "invalid_input")
    assert client.delete(f"{path}/b").status_code == 204
    assert checked(client.post(f"{path}/a/heartbeat"), 200)["partitions"] == [0, 1, 2, 3]
    problem(client.post(f"{path}/b/heartbeat"), 404, "member_not_found")
    problem(client.delete(f"{path}/b"), 404, "member_not_found")


def test_a_member_fetches_its_own_partitions_from_where_the_group_is(client: httpx.Client) -> None:
    create_topic(client, "members-fetch", 2)
    for partition in (0, 1):
        publish(client, "members-fetch", *(f"{partition}-{row}" for row in range(3)), partition=partition)
    join(client, "members-fetch", "g", "a")
    join(client, "members-fetch", "g", "b")
    assert values(fetch(client, "members-fetch", "g", "a")) == ["0-0", "0-1", "0-2"], "which lets the other one go"
    me = join(client, "members-fetch", "g", "b")
    answer = fetch(client, "members-fetch", "g", "b", generation=me["generation"])
    assert values(answer) == ["1-0", "1-1", "1-2"]
    assert answer["positions"] == [{"partition": 1, "offset": 3}]
    assert answer["generation"] == me["generation"]
    assert values(fetch(client, "members-fetch", "g", "b")) == ["1-0", "1-1", "1-2"], "nothing was committed"
    body = {"offsets": [{"partition": 1, "offset": 2}], "member": "b", "generation": me["generation"]}
    offsets = path_of("topics", "members-fetch", "groups", "g", "offsets")
    assert client.post(offsets, json=body).status_code == 204
    assert values(fetch(client, "members-fetch", "g", "b")) == ["1-2"]
    assert values(fetch(client, "members-fetch", "g", "b", positions="1:1", max_messages=1)) == ["1-1"]
    problem(client.post(offsets, json={**body, "member": "a"}), 409, "partition_not_owned")
    both = {"offsets": [{"partition": 0, "offset": 1}, *body["offsets"]], "member": "a", "partial": True}
    answered = client.post(offsets, json=both)
    assert (answered.status_code, answered.headers["headrace-refused"]) == (204, "1")
    assert "headrace-refused" not in client.post(offsets, json=body).headers
    problem(client.post(offsets, json={"offsets": body["offsets"]}), 409, "group_size_conflict")


def test_reading_is_refused_when_it_is_not_the_members_turn(client: httpx.Client) -> None:
    create_topic(client, "members-refused", 2)
    before = join(client, "members-refused", "g", "a")
    join(client, "members-refused", "g", "b")
    stale = problem(ask(client, "members-refused", "g", "a", generation=before["generation"]), 409, "stale_generation")
    assert stale["fields"] == {"group": "g", "generation": before["generation"], "current": before["generation"] + 1}
    assert fetch(client, "members-refused", "g", "a", positions="1:0")["positions"] == [{"partition": 0, "offset": 0}]
    problem(ask(client, "members-refused", "g", "a", positions="0:9"), 422, "offset_out_of_range")
    problem(ask(client, "members-refused", "g", "a", positions="0-9"), 422, "invalid_input")
    problem(ask(client, "members-refused", "g", "a", positions="0:0,0:0"), 422, "invalid_input")
    problem(ask(client, "members-refused", "g", "stranger"), 404, "member_not_found")
    problem(ask(client, "members-refused", "none", "a"), 404, "group_not_found")
    problem(ask(client, "members-refused", "g", "a", max_messages=0), 422, "invalid_request")
    problem(ask(client, "members-refused", "g", "a", wait_seconds=1e9), 422, "invalid_request")
    problem(ask(client, "members-refused", "g", "a", max_mesages=1), 422, "invalid_input")


def test_a_consumer_of_a_fixed_group_gives_its_index(client: httpx.Client) -> None:
    create_topic(client, "members-fixed", 2)
    publish(client, "members-fixed", "one", partition=1)
    client.put(path_of("topics", "members-fixed", "groups", "g"), json={"consumers": 2})
    assert values(fetch(client, "members-fixed", "g", "1")) == ["one"]
    assert values(fetch(client, "members-fixed", "g", "0")) == []
    problem(ask(client, "members-fixed", "g", "2"), 404, "member_not_found")


def test_no_partition_starves_however_few_messages_are_asked_for(client: httpx.Client) -> None:
    create_topic(client, "members-fair", 5)
    for partition in range(5):
        publish(client, "members-fair", *(f"{partition}" for _ in range(40)), partition=partition)
    join(client, "members-fair", "g", "me")
    answer = fetch(client, "members-fair", "g", "me", max_messages=50)
    assert sorted(values(answer)) == sorted("01234" * 10)


def test_a_busy_partition_does_not_keep_the_others_waiting(client: httpx.Client) -> None:
    create_topic(client, "members-busy", 3)
    publish(client, "members-busy", *["busy"] * 3, partition=0)
    publish(client, "members-busy", "patient", partition=1)
    publish(client, "members-busy", "patient", partition=2)
    join(client, "members-busy", "g", "me")
    offsets = path_of("topics", "members-busy", "groups", "g", "offsets")
    seen: list[str] = []
    for _ in range(5):
        publish(client, "members-busy", "busy", "busy", partition=0)
        answer = fetch(client, "members-busy", "g", "me", max_messages=1)
        seen += values(answer)
        body = {"offsets": answer["positions"], "member": "me", "generation": answer["generation"]}
        assert client.post(offsets, json=body).status_code == 204
    assert sorted(seen) == ["busy", "busy", "busy", "patient", "patient"]


def test_fetching_as_arrow_gives_whole_columns_and_the_generation(client: httpx.Client) -> None:
    create_topic(client, "members-arrow", 3)
    for partition in range(3):
        publish(client, "members-arrow", "x", "y", partition=partition)
    me = join(client, "members-arrow", "g", "me")
    path = path_of("topics", "members-arrow", "groups", "g", "members", "me", "messages")
    response = client.get(path, headers={"accept": ARROW})
    table = pa.ipc.open_stream(response.content).read_all()
    assert response.headers["content-type"] == ARROW
    assert response.headers["headrace-generation"] == str(me["generation"])
    assert table.schema.equals(READ_SCHEMA) and table.num_rows == 6
    assert sorted(table["partition"].to_pylist()) == [0, 0, 1, 1, 2, 2]


def test_a_long_poll_ends_with_the_first_message(site: Site) -> None:
    client = site.client
    create_topic(client, "poll", 2)
    join(client, "poll", "g", "me")
    waited = Waiting(site, "poll", "g", "me", wait_seconds=60)
    with site.new_client() as other:
        publish(other, "poll", "hello", partition=1)
    assert values(checked(waited.answer(), 200)) == ["hello"]
    assert waited.seconds < 60


def test_a_long_poll_follows_a_new_assignment_and_refuses_one_if_asked_to(site: Site) -> None:
    client = site.client
    create_topic(client, "poll", 2)
    before = join(client, "poll", "g", "a")
    loose = Waiting(site, "poll", "g", "a", wait_seconds=60)
    strict = Waiting(site, "poll", "g", "a", wait_seconds=60, generation=before["generation"])
    join(client, "poll", "g", "b")
    problem(strict.answer(), 409, "stale_generation")
    publish(client, "poll", "not for a", partition=1)
    publish(client, "poll", "for a", partition=0)
    assert values(checked(loose.answer(), 200)) == ["for a"]


def test_a_member_that_waits_longer_than_its_session_stays_and_one_that_is_silent_is_out(tmp_path: Path) -> None:
    clock = SettableClock()
    with Site(tmp_path, clock=clock) as site:
        create_topic(site.client, "poll")
        join(site.client, "poll", "g", "me", seconds=0.3)
        waiting = Waiting(site, "poll", "g", "me", wait_seconds=60)
        groups = site.broker.topics.find("poll").groups
        for _ in range(5):
            clock.step(0.2)
            eventually(lambda: groups.sessions.until_us("g", "me") == clock.now_us() + 300_000)
        publish(site.client, "poll", "hello")
        assert values(checked(waiting.answer(), 200)) == ["hello"]
        clock.step(0.2)
        assert values(fetch(site.client, "poll", "g", "me")) == ["hello"]
        clock.step(0.4)
        problem(ask(site.client, "poll", "g", "me"), 404, "member_not_found")


def test_a_long_poll_ends_with_its_topic(site: Site) -> None:
    create_topic(site.client, "poll")
    join(site.client, "poll", "g", "me")
    waiting = Waiting(site, "poll", "g", "me", wait_seconds=60)
    site.client.delete(path_of("topics", "poll"))
    problem(waiting.answer(), 404, "topic_deleted")
    assert waiting.seconds < 60


def test_a_long_poll_ends_with_the_server(site: Site) -> None:
    create_topic(site.client, "poll")
    join(site.client, "poll", "g", "me")
    waiting = Waiting(site, "poll", "g", "me", wait_seconds=60)
    site.drain()
    assert values(checked(waiting.answer(), 200)) == []
    assert waiting.seconds < 60


def test_a_client_that_hangs_up_is_waited_for_no_longer(site: Site) -> None:
    create_topic(site.client, "poll")
    join(site.client, "poll", "g", "me")
    watches = site.broker.topics.find("poll").topic.watches
    path = path_of("topics", "poll", "groups", "g", "members", "me", "messages")
    with socket.create_connection(("127.0.0.1", site.port)) as impatient:
        impatient.sendall(f"GET {path}?wait_seconds=60 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        eventually(lambda: len(watches) == 1)
    eventually(lambda: len(watches) == 0)


class Waiting:
    """A long poll in a thread."""

    def __init__(self, site: Site, topic: str, group: str, member: str, **query: Any) -> None:
        self.seconds = 0.0
        self._response: httpx.Response | None = None
        watches = site.broker.topics.find(topic).topic.watches
        watched = len(watches)

        def run() -> None:
            begin = time.monotonic()
            with site.new_client() as client:
                self._response = ask(client, topic, group, member, **query)
            self.seconds = time.monotonic() - begin

        self._thread = threading.Thread(target=run)
        self._thread.start()
        # All who wait on a topic share one watch, so only the first can be seen.
        eventually(lambda: bool(watched or len(watches)))

    def answer(self) -> httpx.Response:
        self._thread.join(PATIENCE_SECONDS)
        assert self._response is not None, "it ended"
        return self._response


def commit(client: httpx.Client, topic: str, group: str, offset: int, **fields: Any) -> httpx.Response:
    body = {"offsets": [{"partition": 0, "offset": offset}], **fields}
    return client.post(path_of("topics", topic, "groups", group, "offsets"), json=body)


def committed(client: httpx.Client, topic: str, group: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = checked(client.get(path_of("topics", topic, "groups", group, "offsets")), 200)[
        "offsets"
    ]
    return found


def test_a_seek_is_not_undone_by_a_member_that_read_before(client: httpx.Client) -> None:
    topic, group = "members-seek", path_of("topics", "members-seek", "groups", "g")
    create_topic(client, topic)
    publish(client, topic, *map(str, range(10)))
    me = join(client, topic, "g", "a")
    read = fetch(client, topic, "g", "a", max_messages=6)
    assert read["generation"] == me["generation"]
    checked(client.post(f"{group}/seek", json={"offsets": [{"partition": 0, "offset": 2}]}), 200)
    # Whether it says its generation or not, and whatever its heartbeats have told it since.
    heard = checked(client.post(f"{group}/members/a/heartbeat"), 200)
    assert heard["seek_generation"] == heard["generation"] > me["generation"]
    problem(commit(client, topic, "g", 6, member="a", generation=me["generation"]), 409, "stale_generation")
    problem(commit(client, topic, "g", 6, member="a"), 409, "stale_generation")
    problem(ask(client, topic, "g", "a", generation=me["generation"], positions="0:6"), 409, "stale_generation")
    assert committed(client, topic, "g") == [{"partition": 0, "offset": 2}]
    assert values(fetch(client, topic, "g", "a")) == list(map(str, range(2, 10)))
    assert commit(client, topic, "g", 10, member="a").status_code == 204
    assert committed(client, topic, "g") == [{"partition": 0, "offset": 10}]
    assert checked(client.get(group), 200)["seek_generation"] == heard["generation"]


def test_a_member_that_waits_is_woken_by_a_seek(client: httpx.Client, shared_site: Site) -> None:
    topic, group = "members-seek-waiting", path_of("topics", "members-seek-waiting", "groups", "g")
    create_topic(client, topic)
    publish(client, topic, "a", "b")
    join(client, topic, "g", "a")
    fetch(client, topic, "g", "a")
    assert commit(client, topic, "g", 2, member="a").status_code == 204
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        with shared_site.new_client() as other:
            answers.append(fetch(other, topic, "g", "a", wait_seconds=25))

    waiting = threading.Thread(target=wait)
    waiting.start()
    checked(client.post(f"{group}/seek", json={"to": "earliest"}), 200)
    waiting.join(PATIENCE_SECONDS)
    assert [values(answer) for answer in answers] == [["a", "b"]]

"""Live subscriptions: what comes, from where, and going on after a disconnect without loss or repetition."""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.memory import resident_bytes
from headrace.core.rights import ANYONE
from headrace.protocols.http.settings import HttpSettings
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.protocols.http.event_client import EventReader, subscribed
from tests.protocols.http.servers import Client
from tests.protocols.http.site import Site, create_topic, path_of, problem, publish
from tests.server_process import ServerProcess


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def events_of(topic: str) -> str:
    return path_of("topics", topic, "events")


def test_messages_come_live_and_with_ids(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "live", 2)
    publish(client, "live", "before", partition=0)
    with shared_site.new_client() as other, subscribed(other, events_of("live")) as reader:
        publish(client, "live", "zero", key="k", partition=0)
        publish(client, "live", "one", partition=1)
        messages = reader.messages(2)
        assert [(m["value"], m["partition"], m["offset"]) for m in messages] == [("zero", 0, 1), ("one", 1, 0)]
        assert messages[0]["key"] == "k"
        assert reader.last_id.endswith(";0:2,1:1")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", ["a", "b", "c", "x"]),
        ("latest", []),
        ("0:1", ["b", "c", "x"]),
        ("0:3,1:1", []),
        ("0:3", ["x"]),
    ],
)
def test_a_subscription_starts_at_the_given_position(
    shared_site: Site, client: httpx.Client, start: str, expected: list[str]
) -> None:
    topic = f"start-{start}"
    create_topic(client, topic, 2)
    publish(client, topic, "a", "b", "c", partition=0)
    publish(client, topic, "x", partition=1)
    with shared_site.new_client() as other, subscribed(other, events_of(topic), **{"from": start}) as reader:
        publish(client, topic, "new", partition=0)
        found = values(reader.messages(len(expected) + 1))
        assert sorted(found) == sorted([*expected, "new"])


def test_a_subscription_begins_at_a_time(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "at-a-time")
    publish(client, "at-a-time", "old")
    time.sleep(0.01)
    between_us = time.time_ns() // 1000
    publish(client, "at-a-time", "new")
    with (
        shared_site.new_client() as other,
        subscribed(other, events_of("at-a-time"), **{"from": str(between_us)}) as reader,
    ):
        assert values(reader.messages(1)) == ["new"]


def test_only_the_partitions_asked_for_are_followed(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "some", 3)
    with shared_site.new_client() as other, subscribed(other, events_of("some"), partitions="2,0") as reader:
        for partition in (1, 0, 1, 2):
            publish(client, "some", str(partition), partition=partition)
        assert sorted(values(reader.messages(2))) == ["0", "2"]


def test_partitions_that_are_added_are_followed_whole(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "grows")
    with shared_site.new_client() as other, subscribed(other, events_of("grows")) as reader:
        client.patch(path_of("topics", "grows"), json={"partitions": 2})
        publish(client, "grows", "hello", partition=1)
        assert values(reader.messages(1)) == ["hello"]


def test_values_that_are_no_text_come_in_base64(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "encodings")
    client.post(
        path_of("topics", "encodings", "messages"),
        json={"encoding": "base64", "messages": [{"value": "/w=="}, {"value": "aGk="}]},
    )
    with shared_site.new_client() as other, subscribed(other, events_of("encodings"), **{"from": "earliest"}) as reader:
        found = [(m["value"], m.get("encoding", "text")) for m in reader.messages(2)]
        assert found == [("/w==", "base64"), ("hi", "text")]
    query = {"from": "earliest", "encoding": "base64"}
    with shared_site.new_client() as other, subscribed(other, events_of("encodings"), **query) as reader:
        assert values(reader.messages(2)) == ["/w==", "aGk="]


def test_coming_back_before_anything_came_misses_nothing(shared_site: Site, client: httpx.Client) -> None:
    create_topic(client, "early", 2)
    publish(client, "early", "before")
    with shared_site.new_client() as other, subscribed(other, events_of("early")) as reader:
        last_id = reader.last_id
    publish(client, "early", "meanwhile", partition=1)
    with shared_site.new_client() as other, subscribed(other, events_of("early"), last_id) as reader:
        assert values(reader.messages(1)) == ["meanwhile"]


@pytest.mark.parametrize("seed", range(3))
def test_random_disconnects_lose_nothing_and_repeat_nothing(shared_site: Site, client: httpx.Client, seed: int) -> None:
    topic, count = f"disconnects-{seed}", 600
    create_topic(client, topic, 3)
    luck = random.Random(seed)

    def write() -> None:
        writing = random.Random(seed + 100)
        sent = 0
        with shared_site.new_client() as writer:
            while sent < count:
                more = min(count - sent, writing.randint(1, 25))
                publish(writer, topic, *(str(sent + row) for row in range(more)))
                sent += more
                time.sleep(writing.random() * 0.01)

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[tuple[int, int]] = []
    last_id: str | None = None
    while len(seen) < count:
        with (
            shared_site.new_client() as other,
            subscribed(other, events_of(topic), last_id, **{"from": "earliest"}) as reader,
        ):
            last_id = reader.last_id
            wanted = luck.randint(1, 60)
            for event in reader.events():
                last_id = event.id
                seen += [(message["partition"], message["offset"]) for message in event.data["messages"]]
                wanted -= len(event.data["messages"])
                if wanted <= 0 or len(seen) >= count:
                    break
    thread.join()
    assert len(seen) == len(set(seen)) == count
    for partition in range(3):
        offsets = [offset for number, offset in seen if number == partition]
        assert offsets == list(range(len(offsets)))


def test_a_restarted_server_continues_at_the_last_id(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "again")
        publish(site.client, "again", "a", "b")
        with subscribed(site.client, events_of("again"), **{"from": "earliest"}) as reader:
            reader.messages(2)
            last_id = reader.last_id
        publish(site.client, "again", "c")
    with Site(tmp_path) as site, subscribed(site.client, events_of("again"), last_id) as reader:
        assert values(reader.messages(1)) == ["c"]


def test_what_retention_dropped_is_reported_as_a_gap(site: Site) -> None:
    create_topic(site.client, "gap", 2, retention_bytes=1)
    for number in range(8):
        publish(site.client, "gap", str(number), partition=0)
    with subscribed(site.client, events_of("gap"), **{"from": "earliest"}) as reader:
        reader.messages(1)
        last_id = reader.last_id.partition(";")[0] + ";0:1"
    site.broker.topics.find("gap").groups.drop_outlived(2**62)
    start, end = site.broker.offsets("gap")[0]
    assert start > 1
    with subscribed(site.client, events_of("gap"), last_id) as reader:
        event = next(reader.events())
        assert (event.kind, event.data) == ("gap", {"partition": 0, "from_offset": 1, "to_offset": start})
        assert values(reader.messages(end - start)) == [str(number) for number in range(start, end)]


def test_an_idle_subscription_is_kept_alive_by_comments(tmp_path: Path) -> None:
    with Site(tmp_path, HttpSettings(heartbeat_seconds=0.05, request_seconds_max=3.0, send_seconds_max=3.0)) as site:
        site.broker.create_topic("idle")
        with site.new_client() as other, subscribed(other, events_of("idle")) as reader:
            comments = 0
            begin = time.monotonic()
            # It outlives the time that other requests have.
            while comments < 10 or time.monotonic() - begin < 3.5:
                comments += next(reader.lines).startswith(":")
            site.broker.publish("idle", pa.record_batch({"value": [b"hello"]}))
            assert values(reader.messages(1)) == ["hello"]


def test_a_subscription_ends_with_its_topic_and_is_not_mistaken_for_the_next(site: Site) -> None:
    create_topic(site.client, "doomed")
    publish(site.client, "doomed", "last")
    with site.new_client() as other, subscribed(other, events_of("doomed"), **{"from": "earliest"}) as reader:
        reader.messages(1)
        site.client.delete(path_of("topics", "doomed"))
        events = list(reader.events())
        assert [(event.kind, event.data["code"]) for event in events] == [("end", "topic_deleted")]
        last_id = reader.last_id
    create_topic(site.client, "doomed")
    publish(site.client, "doomed", "another")
    response = site.client.get(events_of("doomed"), headers={"last-event-id": last_id})
    problem(response, 404, "topic_deleted")


def test_subscriptions_end_with_the_server(site: Site) -> None:
    create_topic(site.client, "served")
    with site.new_client() as other, subscribed(other, events_of("served")) as reader:
        site.drain()
        events = list(reader.events())
        assert [(event.kind, event.data["code"], event.data["retry"]) for event in events] == [("end", "closed", False)]


def test_what_cannot_be_subscribed_to_is_refused(client: httpx.Client) -> None:
    create_topic(client, "refused", 2)
    path = events_of("refused")
    problem(client.get(events_of("nowhere")), 404, "topic_not_found")
    problem(client.get(path, params={"from": "middle"}), 422, "invalid_input")
    problem(client.get(path, params={"from": "9" * 25}), 422, "invalid_input")
    problem(client.get(path, params={"from": "5:0"}), 422, "invalid_input")
    problem(client.get(path, params={"from": "0:1"}), 422, "offset_out_of_range")
    problem(client.get(path, params={"partitions": "0,two"}), 422, "invalid_input")
    problem(client.get(path, params={"partitions": "2"}), 404, "partition_not_found")
    problem(client.get(path, params={"encoding": "hex"}), 422, "invalid_request")
    problem(client.get(path, headers={"last-event-id": "junk"}), 422, "invalid_input")
    problem(client.get(path, headers={"last-event-id": "1;0:99999"}), 404, "topic_deleted")
    problem(client.get(path, headers={"accept": "application/json"}), 406, "not_acceptable")
    number = client.get(path_of("topics", "refused")).json()["id"]
    problem(client.get(path, headers={"last-event-id": f"{number};0:7"}), 422, "offset_out_of_range")


PLACES = (
    st.sampled_from(
        ["earliest", "latest", "0", "0:0", "1:3", "0:1,1:2", "0:1,0:2", "9" * 19, "9" * 20, "0:" + "9" * 30]
    )
    | st.from_regex(r"[0-9:,;-]{0,12}", fullmatch=True)
    | st.text(max_size=8)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.none() | PLACES,
    partitions=st.none() | st.from_regex(r"[0-9,]{0,8}", fullmatch=True) | st.text(max_size=5),
    last_id=st.none() | st.from_regex(r"[0-9]{0,3};?[0-9:,]{0,8}", fullmatch=True),
    encoding=st.none() | st.sampled_from(["text", "base64", "hex", ""]),
)
def test_whatever_is_asked_there_is_a_stream_or_a_problem(
    shared_site: Site,
    client: httpx.Client,
    start: str | None,
    partitions: str | None,
    last_id: str | None,
    encoding: str | None,
) -> None:
    create_topic(client, "whatever", 2)
    asked = {"from": start, "partitions": partitions, "encoding": encoding}
    query = {name: value for name, value in asked.items() if value is not None}
    headers = {} if last_id is None else {"last-event-id": last_id}
    with client.stream("GET", events_of("whatever"), params=query, headers=headers) as response:
        if response.status_code != 200:
            response.read()
            assert response.status_code in (404, 422)
            problem(response, response.status_code, response.json()["code"])
        else:
            assert next(response.iter_lines()).startswith("retry:")


def test_a_client_that_does_not_read_holds_little_and_nobody(site: Site) -> None:
    create_topic(site.client, "firehose")
    raw = socket.create_connection(("127.0.0.1", site.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.sendall(f"GET {events_of('firehose')} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert raw.recv(12) == b"HTTP/1.1 200"
    with site.new_client() as other, subscribed(other, events_of("firehose")) as reader:
        for _ in range(40):
            publish(site.client, "firehose", *["x" * 50_000] * 4)
        assert len(reader.messages(160)) == 160
    read = site.broker.counters.snapshot()["messages_read"]
    assert read < 160 + 120, "what the stuck client cannot take is not read for it"
    raw.close()


def test_a_thousand_idle_subscribers_share_one_watch_and_no_threads(site: Site) -> None:
    create_topic(site.client, "combiner")
    watches = site.broker.topics.find("combiner").topic.watches
    threads = threading.active_count()
    combiner = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(1_000)]
    try:
        request = f"GET {events_of('combiner')} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        for member in combiner:
            member.sendall(request)
        for member in combiner:
            assert b"200" in member.recv(4096)
        eventually(lambda: len(watches) == 1)
        assert threading.active_count() < threads + 100, "no more than the pools have"
        publish(site.client, "combiner", "hello")
        for member in combiner:
            member.settimeout(PATIENCE_SECONDS)
            text = b""
            while b"hello" not in text:
                text += member.recv(4096)
    finally:
        for member in combiner:
            member.close()
    eventually(lambda: len(watches) == 0)


def test_the_reader_of_these_tests_reads_as_the_standard_says() -> None:
    text = "retry: 5\nid: 1\n\n: comment\n\nevent: a\nid: 2\ndata: [1,\ndata: 2]\n\ndata: 3\n\n"
    reader = EventReader(httpx.Response(200, text=text)).open()
    assert reader.last_id == "1"
    assert [(event.kind, event.data, event.id) for event in reader.events()] == [
        ("a", [1, 2], "2"),
        ("message", 3, "2"),
    ]
    assert reader.comments == 1


def test_subscribers_that_never_read_hold_little_memory(tmp_path: Path) -> None:
    """Against a server in a process of its own: each held 0.8 MB."""
    stuck: list[socket.socket] = []
    server = ServerProcess(f"file:{tmp_path / 'store'}?durability=os")
    try:
        with Client(server.port) as client:
            client.json("POST", "/v1/topics", {"name": "firehose"})
            messages = {"messages": [{"value": "x" * 1_000}] * 1_000}
            for _ in range(8):
                assert client.json("POST", path_of("topics", "firehose", "messages"), messages)[0] == 200
        # What threads and caches take is there with the first of them.
        few = _memory_beside(server, stuck, 30)
        many = _memory_beside(server, stuck, 120)
        assert many - few < 120 * 250_000
    finally:
        for one in stuck:
            one.close()
        server.close()


def _memory_beside(server: ServerProcess, stuck: list[socket.socket], count: int) -> int:
    """What the server takes once so many more subscribe and read nothing."""
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.connect(("127.0.0.1", server.port))
        one.sendall(f"GET {events_of('firehose')}?from=earliest HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        stuck.append(one)
    for one in stuck[-count:]:
        assert one.recv(12) == b"HTTP/1.1 200"
    seen: list[int] = []
    eventually(lambda: _is_settled(seen, resident_bytes(server.pid, "RssAnon")))
    return seen[-1]


def _is_settled(seen: list[int], size: int) -> bool:
    """Whether memory is as it was for the last few looks."""
    seen.append(size)
    time.sleep(0.2)
    return len(seen) > 5 and max(seen[-5:]) - min(seen[-5:]) < 1_000_000


def test_a_client_that_leaves_with_another_request_behind_its_stream_ends_it(shared_site: Site) -> None:
    """Only the request behind it was told: the stream went on, and the log had a traceback of its next event."""
    create_topic(shared_site.client, "left", 1)
    streams, head = shared_site.limits.streams, b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
    before = streams.room(ANYONE.name)
    with socket.create_connection(("127.0.0.1", shared_site.port)) as connection:
        connection.sendall(b"GET %b%b" % (events_of("left").encode(), head))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert streams.room(ANYONE.name) == before - 1
        connection.sendall(b"GET /health/live%b" % head)
    eventually(lambda: streams.room(ANYONE.name) == before)

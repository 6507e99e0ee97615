"""Messages pushed to members: whose they are, from where, how a rebalance passes, and how a stream ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.core.rights import Right
from headrace.edge.envelope.port_sockets import PortSockets
from tests.broker.background import eventually
from tests.broker.clock import SettableClock
from tests.protocols.http.event_client import EventReader, subscribed
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem, publish


def member_path(topic: str, member: str) -> str:
    return path_of("topics", topic, "groups", "g", "members", member)


def join(client: httpx.Client, topic: str, member: str, seconds: float = 30.0) -> dict[str, Any]:
    return checked(client.put(member_path(topic, member), json={"session_timeout_seconds": seconds}), 200)


@contextmanager
def pushed(site: Site, topic: str, member: str, last_id: str | None = None) -> Iterator[EventReader]:
    """A member's stream, and nothing read of it."""
    with site.new_client() as client, subscribed(client, member_path(topic, member) + "/events", last_id) as reader:
        yield reader


def next_event(reader: EventReader, kind: str) -> Any:
    event = next(reader.events())
    assert event.kind == kind, event
    return event.data


def assigned(reader: EventReader) -> tuple[list[int], list[int]]:
    """The partitions to read, and those to let go."""
    data = next_event(reader, "assignment")
    return data["partitions"], data["revoking"]


def messages(reader: EventReader, count: int) -> tuple[list[str], dict[str, Any]]:
    """The values of so many messages, and the last event."""
    found: list[str] = []
    while True:
        data = next_event(reader, "messages")
        found += [message["value"] for message in data["messages"]]
        if len(found) >= count:
            return found, data


def commit(client: httpx.Client, topic: str, member: str, data: dict[str, Any]) -> None:
    offsets = [{"partition": data["messages"][0]["partition"], "offset": data["next_offset"]}]
    body = {"offsets": offsets, "member": member, "generation": data["generation"]}
    response = client.post(path_of("topics", topic, "groups", "g", "offsets"), json=body)
    assert response.status_code == 204, response.text


def test_a_partition_passes_to_another_member_where_the_first_has_committed(
    shared_site: Site, client: httpx.Client
) -> None:
    topic = "push-pass"
    create_topic(client, topic, 2)
    publish(client, topic, "a", "b", partition=1)
    join(client, topic, "ann")
    with pushed(shared_site, topic, "ann") as ann:
        assert assigned(ann) == ([0, 1], [])
        values, last = messages(ann, 2)
        assert values == ["a", "b"]
        join(client, topic, "bob")
        assert assigned(ann) == ([0], [1])
        with pushed(shared_site, topic, "bob") as bob:
            assert assigned(bob) == ([], [])
            publish(client, topic, "c", partition=1)
            publish(client, topic, "d", partition=0)
            assert messages(ann, 1)[0] == ["d"], "and nothing of what is to be let go"
            last["next_offset"] = 1
            commit(client, topic, "ann", last)
            held = {"generation": last["generation"] + 1, "partitions": [0]}
            checked(client.post(member_path(topic, "ann") + "/heartbeat", json=held), 200)
            assert assigned(ann) == ([0], [])
            assert assigned(bob) == ([1], [])
            values, last = messages(bob, 2)
            assert values == ["b", "c"]
            commit(client, topic, "bob", last)


def test_consumers_of_a_fixed_group_are_pushed_their_partitions_by_modulo(
    shared_site: Site, client: httpx.Client
) -> None:
    topic, group = "push-fixed", path_of("topics", "push-fixed", "groups", "g")
    create_topic(client, topic, 3)
    client.put(group, json={"consumers": 2})
    with pushed(shared_site, topic, "0") as zero, pushed(shared_site, topic, "1") as one:
        assert (assigned(zero), assigned(one)) == (([0, 2], []), ([1], []))
        for partition in range(3):
            publish(client, topic, f"{partition}", partition=partition)
        values, last = messages(zero, 2)
        assert sorted(values) == ["0", "2"]
        assert messages(one, 1)[0] == ["1"]
        client.patch(path_of("topics", topic), json={"partitions": 4})
        assert assigned(one) == ([1, 3], [])
        # Another size voids all positions: each goes on where the group has committed.
        commit(client, topic, "0", last)
        left = ({"0", "2"} - {last["messages"][0]["value"]}).pop()
        client.put(group, json={"consumers": 1})
        assert assigned(zero) == ([0, 1, 2, 3], [])
        assert sorted(messages(zero, 2)[0]) == sorted([left, "1"])
        assert next_event(one, "end")["code"] == "member_not_found"


def test_coming_back_continues_unless_the_partitions_were_lost(shared_site: Site, client: httpx.Client) -> None:
    topic = "push-again"
    create_topic(client, topic)
    publish(client, topic, "a", "b")
    join(client, topic, "ann")
    with pushed(shared_site, topic, "ann") as ann:
        assigned(ann)
        messages(ann, 2)
        last_id = ann.last_id
    publish(client, topic, "c")
    with pushed(shared_site, topic, "ann", last_id) as ann:
        assigned(ann)
        assert messages(ann, 1)[0] == ["c"]
        last_id = ann.last_id
    client.delete(member_path(topic, "ann"))
    join(client, topic, "ann")
    with pushed(shared_site, topic, "ann", last_id) as ann:
        assigned(ann)
        assert messages(ann, 3)[0] == ["a", "b", "c"], "nothing was committed"


def test_a_seek_moves_a_stream(shared_site: Site, client: httpx.Client) -> None:
    topic = "push-seek"
    create_topic(client, topic)
    publish(client, topic, "a", "b")
    join(client, topic, "ann")
    with pushed(shared_site, topic, "ann") as ann:
        assigned(ann)
        commit(client, topic, "ann", messages(ann, 2)[1])
        client.post(path_of("topics", topic, "groups", "g", "seek"), json={"to": "earliest"})
        moved = next_event(ann, "assignment")
        assert moved["generation"] == moved["seek_generation"]
        values, last = messages(ann, 2)
        assert values == ["a", "b"]
        commit(client, topic, "ann", last)


def test_a_stream_ends_with_its_member_its_topic_and_its_server(site: Site) -> None:
    create_topic(site.client, "doomed")
    create_topic(site.client, "served")
    for topic in ("doomed", "served"):
        join(site.client, topic, "ann")
        join(site.client, topic, "bob")
    with (
        pushed(site, "served", "ann") as removed,
        pushed(site, "doomed", "bob") as deleted,
        pushed(site, "served", "bob") as stopped,
    ):
        site.client.delete(member_path("served", "ann"))
        assert [event.data["code"] for event in removed.events() if event.kind == "end"] == ["member_not_found"]
        site.client.delete(path_of("topics", "doomed"))
        assert [event.data["code"] for event in deleted.events() if event.kind == "end"] == ["topic_deleted"]
        site.drain()
        assert [event.data["code"] for event in stopped.events() if event.kind == "end"] == ["closed"]


def test_a_client_that_reads_stays_a_member_and_one_that_does_not_holds_little_and_is_lost(tmp_path: Path) -> None:
    clock = SettableClock()
    with Site(tmp_path, clock=clock) as site:
        for topic in ("quiet", "firehose"):
            create_topic(site.client, topic)
        for _ in range(40):
            publish(site.client, "firehose", *["x" * 50_000] * 4)
        for topic in ("quiet", "firehose"):
            join(site.client, topic, "ann", seconds=0.3)
        quiet, firehose = (site.broker.topics.find(topic).groups for topic in ("quiet", "firehose"))

        def step() -> None:
            clock.step(0.2)
            eventually(lambda: quiet.sessions.until_us("g", "ann") == clock.now_us() + 300_000)

        with pushed(site, "quiet", "ann") as ann, socket.socket() as stuck:
            assigned(ann)
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", site.port))
            head = f"GET {member_path('firehose', 'ann')}/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
            stuck.sendall(head.encode())
            assert stuck.recv(12) == b"HTTP/1.1 200"
            while firehose.get("g").members:
                step()
                firehose.expire()
            publish(site.client, "quiet", "hello")
            assert messages(ann, 1)[0] == ["hello"]
            assert site.broker.counters.snapshot()["messages_read"] < 120, "what it cannot take is not read for it"
            text = b""
            while not text.endswith(b"\r\n0\r\n\r\n"):
                text = text[-1_000:] + stuck.recv(1 << 20)
            assert b"event: end" in text and b"member_not_found" in text


def test_tcp_ends_only_streams_of_members_whose_machine_is_gone(site: Site) -> None:
    create_topic(site.client, "t")
    join(site.client, "t", "ann")

    def seconds() -> list[int]:
        """After which TCP ends the connections of the server, in milliseconds; 0: after the system's time."""
        sockets, found = PortSockets(site.port), list[int]()
        sockets.find()
        for number in sockets.peers:
            with socket.socket(fileno=os.dup(number)) as each:
                found.append(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        return sorted(found)

    events = path_of("topics", "t", "events")
    with site.new_client() as client, subscribed(client, events) as reader:
        assert reader.response.headers["x-accel-buffering"] == "no"
        assert set(seconds()) == {0}
        with pushed(site, "t", "ann") as ann:
            assert ann.response.headers["x-accel-buffering"] == "no"
            assert seconds()[-2:] == [0, 60_000]
            # The connection of another request is that of a stream no more.
            site.client.delete(member_path("t", "ann"))
            assert [event.kind for event in ann.events()] == ["assignment", "end"]
            eventually(lambda: set(seconds()) == {0})


def test_what_cannot_be_pushed_is_refused(site: Site) -> None:
    client, path = site.client, member_path("refused", "ann") + "/events"
    problem(client.get(path), 404, "topic_not_found")
    create_topic(client, "refused", 2)
    problem(client.get(path), 404, "group_not_found")
    join(client, "refused", "bob")
    problem(client.get(path), 404, "member_not_found")
    join(client, "refused", "ann")
    problem(client.get(path, headers={"accept": "application/json"}), 406, "not_acceptable")
    problem(client.get(path, params={"encoding": "hex"}), 422, "invalid_request")
    problem(client.get(path, headers={"last-event-id": "junk"}), 422, "invalid_input")
    problem(client.get(path, headers={"last-event-id": "99.1;0:7"}), 404, "topic_deleted")
    number = client.get(path_of("topics", "refused")).json()["id"]
    client.delete(member_path("refused", "bob"))
    generation = join(client, "refused", "ann")["generation"]
    problem(client.get(path, headers={"last-event-id": f"{number}.{generation};0:7"}), 422, "offset_out_of_range")
    client.put(path_of("topics", "refused", "groups", "fixed"), json={"consumers": 1})
    fixed = path_of("topics", "refused", "groups", "fixed", "members", "1", "events")
    problem(client.get(fixed), 404, "member_not_found")


def test_a_stream_needs_the_right_to_read_and_ends_with_the_token(site: Site) -> None:
    root = site.new_client(site.access.create("root", [("*", list(Right))])[1])
    create_topic(root, "t")
    join(root, "t", "ann")
    path = member_path("t", "ann") + "/events"
    problem(site.new_client(site.access.create("writer", [("t", ["publish"])])[1]).get(path), 403, "forbidden")
    record, text = site.access.create("reader", [("t", ["read"])])
    with site.new_client(text) as client, subscribed(client, path) as reader:
        assert assigned(reader) == ([0], [])
        site.access.revoke(record.id)
        assert next_event(reader, "end")["code"] == "unauthenticated"

"""Streams: what is pushed, and how each ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import PATIENCE_SECONDS, RawCursus, batch, records
from tests.protocols.cursus.test_groups import Member


@pytest.fixture
def stream(site: CursusSite) -> Iterator[RawCursus]:
    """A second connection."""
    with RawCursus(site.port) as client:
        yield client


def pushed(stream: RawCursus) -> list[str]:
    """The payloads of the next frame that is no keepalive."""
    while not (frame := stream.frame()):
        pass
    return [message.payload for message in stream.decoded(frame)]


def ending(stream: RawCursus) -> str:
    """The frame that ends a stream; nothing comes after it."""
    while not (frame := stream.frame()):
        pass
    assert stream.is_closed()
    return frame.decode()


def test_what_is_written_is_pushed(client: RawCursus, stream: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(3)))
    stream.stream(f"topic={topic} partition=0 group=g")
    assert pushed(stream) == ["1", "2", "3"]
    client.acknowledged(batch(topic, records(2, 4)))
    assert pushed(stream) == ["4", "5"]
    # An empty frame says that nothing is written.
    assert stream.frame() == b""
    client.acknowledged(batch(topic, records(1, 6), partition=1))
    assert stream.frame() == b""


def test_a_stream_starts_where_the_group_or_the_client_is(client: RawCursus, topic: str, site: CursusSite) -> None:
    client.acknowledged(batch(topic, records(5)))
    one = Member(client, topic)
    one.ask("COMMIT_OFFSET", "partition=0 offset=2")
    for more, expected in (("", "345"), ("offset=1", "345"), ("offset=4", "5")):
        with RawCursus(site.port) as stream:
            stream.stream(
                f"topic={topic} partition=0 group=g member={one.name} generation={one.generation} batch=2 {more}"
            )
            found = pushed(stream)
            while len(found) < len(expected):
                found += pushed(stream)
            assert "".join(found) == expected


def test_a_newer_stream_ends_the_older(client: RawCursus, stream: RawCursus, topic: str, site: CursusSite) -> None:
    client.acknowledged(batch(topic, records(2)))
    stream.stream(f"topic={topic} partition=0 group=g")
    assert pushed(stream) == ["1", "2"]
    with RawCursus(site.port) as newer:
        newer.stream(f"topic={topic} partition=0 group=g")
        assert ending(stream) == "STREAM_CONTROL type=CLOSE reason=replaced offset=2"
        assert pushed(newer) == ["1", "2"]


def test_a_member_that_loses_its_partition_loses_its_stream(client: RawCursus, topic: str, site: CursusSite) -> None:
    client.acknowledged(batch(topic, records(2), partition=0))
    client.acknowledged(batch(topic, records(2), partition=1))
    one = Member(client, topic)
    streams = {partition: RawCursus(site.port) for partition in one.partitions}
    for partition, stream in streams.items():
        stream.stream(f"topic={topic} partition={partition} group=g member={one.name} generation={one.generation}")
        assert pushed(stream) == ["1", "2"]
    two = Member(client, topic)
    lost, kept = two.partitions[0], 1 - two.partitions[0]
    assert ending(streams[lost]) == "STREAM_CONTROL type=CLOSE reason=removed offset=2"
    # The one that it kept goes on, also before it has heard of the new generation.
    client.acknowledged(batch(topic, records(1, 3), partition=kept))
    assert pushed(streams[kept]) == ["3"]
    with RawCursus(site.port) as late:
        late.stream(f"topic={topic} partition={kept} group=g member={one.name} generation={one.generation}")
        assert late.frame().startswith(b"ERROR: GEN_MISMATCH")
    site.broker.seek(topic, "g", {kept: 0})
    assert ending(streams[kept]) == "STREAM_CONTROL type=CLOSE reason=removed offset=3"
    for stream in streams.values():
        stream.close()


def test_a_stream_whose_messages_are_deleted_says_where_to_go_on(
    client: RawCursus, stream: RawCursus, topic: str, site: CursusSite
) -> None:
    client.acknowledged(batch(topic, records(400, size=1_000)))
    stream.stream(f"topic={topic} partition=0 group=g batch=1")
    assert pushed(stream)[0].startswith("1")
    site.broker.delete_messages(topic, {0: 400})
    found = stream.frame()
    while found.startswith(b"\xba\x7c"):
        found = stream.frame()
    assert found.startswith(b"STREAM_CONTROL type=CLOSE reason=offset_out_of_range requested=")
    assert b" earliest=400 latest=400 " in found
    stream.close()
    with RawCursus(site.port) as again:
        again.stream(f"topic={topic} partition=0 group=g offset=5")
        assert again.frame() == b"ERROR: OFFSET_OUT_OF_RANGE requested=5 earliest=400 latest=400"


def test_a_stream_ends_with_its_topic(client: RawCursus, stream: RawCursus, topic: str) -> None:
    stream.stream(f"topic={topic} partition=0 group=g")
    assert stream.frame() == b""
    client.ask(f"DELETE topic={topic}")
    assert ending(stream) == "STREAM_CONTROL type=CLOSE reason=error offset=0"


def test_streams_end_with_the_server_and_with_their_clients() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = CursusSettings(keepalive_seconds=0.2)
    with Broker.open("memory:") as broker, CursusServer(broker, broker.access, settings, listeners) as server:
        broker.create_topic("t")
        traffic = server.gate.limits.traffic["cursus"]
        with RawCursus(sockets.port_of(listeners)) as stream, RawCursus(sockets.port_of(listeners)) as left:
            for each in (stream, left):
                each.stream("topic=t partition=0 group=g" if each is stream else "topic=t partition=0 group=h")
                assert each.frame() == b""
            assert traffic.connections == 2
            left.shutdown()
            assert ending(left) == "STREAM_CONTROL type=CLOSE reason=stopped offset=0"
            server.stop()
            assert ending(stream) == "STREAM_CONTROL type=CLOSE reason=stopped offset=0"
        assert traffic.connections == 0


def test_a_client_that_does_not_read_costs_a_bounded_buffer() -> None:
    """It is disconnected in time; what it was not sent takes no memory, and a stop does not wait for it."""
    listeners = sockets.bind("127.0.0.1", 0)
    settings = CursusSettings(send_seconds_max=1.0, fetch_bytes_max=1 << 20)
    with Broker.open("memory:") as broker, CursusServer(broker, broker.access, settings, listeners) as server:
        broker.create_topic("t")
        with RawCursus(sockets.port_of(listeners)) as client:
            for _ in range(16):
                client.acknowledged(batch("t", records(10, size=200_000)))
        with RawCursus(sockets.port_of(listeners), receive_bytes=4_096) as deaf:
            deaf.stream("topic=t partition=0 group=g")
            assert pushed(deaf)
            assert server.stop(PATIENCE_SECONDS)
        assert server.gate.limits.traffic["cursus"].bytes_out < 16 << 20

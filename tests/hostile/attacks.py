"""Attacks by the holder of an ordinary token, or by a stranger, each on something that all callers share.

    ATTACKS["announced lengths"](address, seconds)      attack for so long; returns what it did, in words

The attacker has rights on topics that matter to nobody. `test_attacks` holds each of them to the bounds of `cost`;
`python -m bench.attacks` measures what a victim waits meanwhile. To add one: a function here.
"""

from __future__ import annotations

import http.client
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from headrace.core.limits import PARTITIONS_MAX
from headrace.protocols.kafka.apis.table import APIS
from headrace.wire import native, tickets
from tests.hostile import victim, ydb_attacks
from tests.hostile.kafka_requests import SUBSCRIPTION, prepared, shapes
from tests.hostile.target import NARROW, WIDE, Address
from tests.protocols.kafka.raw import RawClient, framed
from tests.protocols.kafka.records.test_codec import NOW_MS, built

MIB: Final = 1 << 20
PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, CONSUMER_HEARTBEAT = 0, 1, 11, 14, 68
# In an answer of version 11, behind the correlation id, a time and the error.
SESSION_ID_PLACE: Final = 10
DAY_MS: Final = 86_400_000
NOTHING: Final = b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
ANY_FAILURE: Final = (OSError, EOFError, AssertionError, http.client.HTTPException, pa.ArrowException)

Attack = Callable[[Address, float], str]


def _client(address: Address) -> RawClient:
    return RawClient(address.kafka, token=address.tokens["attacker"])


def _connect(open_: ExitStack, port: int, count: int, sent: bytes) -> None:
    """So many connections that send something and stay, as far as they are let in."""
    for _ in range(count):
        with suppress(OSError):
            open_.enter_context(socket.create_connection(("127.0.0.1", port), 10)).sendall(sent)


@contextmanager
def _many_files() -> Iterator[None]:
    """As many connections as the system allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# Lengths that are announced, and nothing more


def announced_lengths(address: Address, seconds: float) -> str:
    """Say that 64 MiB follow, and send nothing."""
    with ExitStack() as open_:
        for _ in range(8):
            with suppress(*ANY_FAILURE):
                open_.enter_context(_client(address)).send(struct.pack(">i", 64 * MIB))
        time.sleep(seconds)
    return "8 connections announce 64 MiB each"


def announced_by_strangers(address: Address, seconds: float) -> str:
    """The same without a token."""
    with _many_files(), ExitStack() as open_:
        _connect(open_, address.kafka, 8_300, struct.pack(">i", 64 << 10))
        time.sleep(seconds)
    return "8,300 connections without a token announce 64 KiB each"


# Groups


def group_of_others(address: Address, seconds: float) -> str:
    """Join the group of the victim, subscribed to nothing, and never come back."""
    joining = {"group_id": victim.GROUP, "session_timeout": DAY_MS, "rebalance_timeout": (1 << 31) - 1}
    joining |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": NOTHING}]}
    with ExitStack() as open_:
        for _ in range(2):
            with suppress(*ANY_FAILURE):
                client = open_.enter_context(_client(address))
                member_id = client.call(JOIN_GROUP, 5, member_id="", **joining).member_id
                client.request(JOIN_GROUP, 5, member_id=member_id, **joining)
                time.sleep(1.0)
        time.sleep(seconds)
    return "2 members of the victim's group that subscribe to nothing"


def kept_assignments(address: Address, seconds: float) -> str:
    """Leave large assignments behind in groups of its own, and go."""
    for count in range(10):
        with suppress(*ANY_FAILURE), _client(address) as client:
            joining = {"session_timeout": DAY_MS, "rebalance_timeout": 1000, "protocol_type": "consumer"}
            joining |= {"group_id": f"kept-{count}", "protocols": [{"name": "range", "metadata": NOTHING}]}
            member_id = client.call(JOIN_GROUP, 5, member_id="", **joining).member_id
            generation = client.call(JOIN_GROUP, 5, member_id=member_id, **joining).generation_id
            member = {"group_id": f"kept-{count}", "member_id": member_id, "generation_id": generation}
            given = [{"member_id": member_id, "assignment": bytes(40 * MIB)}]
            client.call(SYNC_GROUP, 3, **member, assignments=given)
    time.sleep(seconds)
    return "10 groups with an assignment of 40 MiB"


def many_consumers(address: Address, seconds: float) -> str:
    """Join a group of the newer protocol again and again, for a topic of 10,000 partitions."""
    deadline, count = time.monotonic() + seconds, 0
    newer = {"group_id": "scratch-many", "member_epoch": 0, "rebalance_timeout": 9_000, "topic_partitions": []}
    with suppress(*ANY_FAILURE), _client(address) as client:
        while time.monotonic() < deadline:
            client.call(CONSUMER_HEARTBEAT, 0, member_id=f"m{count}", subscribed_topic_names=[WIDE], **newer)
            count += 1
    return f"{count} members of a topic of 10,000 partitions"


# Answers


def unread_answers(address: Address, seconds: float) -> str:
    """Ask for 16 MiB on each of 40 connections, and read nothing."""
    value = bytes(700_000)
    data = [{"name": NARROW, "partition_data": [{"index": 0, "records": built([(NOW_MS, None, value, [])])}]}]
    wanted = [{"topic": NARROW, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 16 * MIB}]}]
    asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 16 * MIB, "topics": wanted}
    with ExitStack() as open_:
        with suppress(*ANY_FAILURE):
            client = open_.enter_context(_client(address))
            for _ in range(24):
                client.call(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
        for _ in range(40):
            with suppress(*ANY_FAILURE):
                client = open_.enter_context(_client(address))
                client.receive_little()
                client.request(FETCH, 11, **asked)
        time.sleep(seconds)
    return "40 connections do not read 16 MiB each"


def wide_session(address: Address, seconds: float) -> str:
    """Ask for news of a fetch session of a whole topic, again and again."""
    asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "forgotten_topics_data": []}
    parts = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 10} for number in range(PARTITIONS_MAX)]
    first = framed(FETCH, 11, asked | {"session_epoch": 0, "topics": [{"topic": WIDE, "partitions": parts}]})
    count = 0
    with suppress(*ANY_FAILURE), _client(address) as client:
        client.send(first)
        session_id = struct.unpack_from(">i", client.frame(), SESSION_ID_PLACE)[0]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            count += 1
            client.request(FETCH, 11, **asked, session_id=session_id, session_epoch=count, topics=[])
            client.answer_size()
    return f"{count} fetches of a session of {PARTITIONS_MAX:,} partitions"


# One request, again and again


def _join(address: Address, group: str, count: int) -> None:
    """Let so many members join a group, where they stay."""
    joining = {"group_id": group, "session_timeout": DAY_MS, "rebalance_timeout": 1000, "protocol_type": "consumer"}
    joining |= {"protocols": [{"name": "range", "metadata": SUBSCRIPTION}], "member_id": ""}
    with ExitStack() as open_, suppress(*ANY_FAILURE):
        clients = [open_.enter_context(_client(address)) for _ in range(count)]
        for client in clients:
            client.request(JOIN_GROUP, 3, **joining)
        for client in clients:
            client.answer_size()


def _again(api: str, array: str, count: int, is_distinct: bool = False, members: int = 0) -> Attack:
    key = next(key for key, each in APIS.items() if each.name == api)

    def attack(address: Address, seconds: float) -> str:
        requests = prepared(address, f"scratch-again-{key}")
        _join(address, f"scratch-again-{key}", members)
        shape = shapes(key)[-1]
        place = next(path for path in shape.arrays if ".".join(path) == array)
        request = requests.repeated(shape, place, count, is_distinct)
        deadline, sent, answered = time.monotonic() + seconds, 0, 0
        while time.monotonic() < deadline:
            with suppress(*ANY_FAILURE), _client(address) as client:
                while time.monotonic() < deadline:
                    sent += 1
                    client.send(request)
                    answered += client.answer_size()
            time.sleep(0.05)
        return f"{sent} requests of {len(request):,} bytes, answers of {answered / MIB:,.0f} MiB"

    return attack


# Other protocols


def http_bodies(address: Address, seconds: float) -> str:
    """Say that a body of 64 MiB follows, and send nothing."""
    head = f"POST /v1/topics/{NARROW}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {address.tokens['attacker']}\r\ncontent-length: {64 * MIB}\r\n\r\n"
    with ExitStack() as open_:
        _connect(open_, address.http, 100, head.encode())
        time.sleep(seconds)
    return "100 connections announce bodies of 64 MiB"


def http_heads(address: Address, seconds: float) -> str:
    """Begin heads without a token, and never end them."""
    with _many_files(), ExitStack() as open_:
        _connect(open_, address.http, 2_000, b"GET / HTTP/1.1\r\nx: " + b"x" * 30_000)
        time.sleep(seconds)
    return "2,000 heads of 30 KB without an end"


def flight_uploads(address: Address, seconds: float) -> str:
    """Open uploads, and send nothing."""
    headers = [(b"authorization", f"Bearer {address.tokens['attacker']}".encode())]
    options = flight.FlightCallOptions(headers=headers, timeout=seconds + 60)
    command = flight.FlightDescriptor.for_command(tickets.encode(tickets.Publish(NARROW)))
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{address.flight}") as client:
        streams = []
        for _ in range(250):
            with suppress(*ANY_FAILURE):
                streams.append(client.do_put(command, pa.schema({"value": pa.binary()}), options)[0])
        time.sleep(seconds)
        for stream in streams:
            with suppress(*ANY_FAILURE), closing(stream):
                pass
    return "250 uploads without a batch"


def native_silence(address: Address, seconds: float) -> str:
    """Say that 64 MiB follow in an upload, or nothing at all, and send nothing more; as a stranger too."""
    hello = native.frame(native.HELLO, msgspec.json.encode(native.Hello(1, address.tokens["attacker"])))
    upload = native.frame(native.UPLOAD, tickets.encode(tickets.Publish(NARROW)))
    announced = struct.pack(">i", 64 * MIB)
    with _many_files(), ExitStack() as open_:
        for sent in (hello + upload + announced, hello + upload, hello):
            _connect(open_, address.native, 8, sent)
        _connect(open_, address.native, 2_000, struct.pack(">i", 16 << 10) + b"h")
        time.sleep(seconds)
    return "24 connections that stay silent, and 2,000 without a token"


def native_followers(address: Address, seconds: float) -> str:
    """Follow from the beginning over many connections, with all the credit there is, and read nothing."""
    hello = native.frame(native.HELLO, msgspec.json.encode(native.Hello(1, address.tokens["attacker"])))
    ticket = tickets.encode(tickets.Follow(NARROW, {0: 0}, mixed=True, growing=True))
    follow = native.frame(native.FOLLOW, native.CREDIT.pack(1 << 62), ticket)
    with _many_files(), ExitStack() as open_:
        _connect(open_, address.native, 500, hello + follow)
        time.sleep(seconds)
    return "500 followers that read nothing"


ATTACKS: Final[dict[str, Attack]] = {
    "announced lengths": announced_lengths,
    "announced lengths, without a token": announced_by_strangers,
    "group of others": group_of_others,
    "answers: Metadata": _again("Metadata", "topics", 100),
    "answers: DescribeGroups": _again("DescribeGroups", "groups", 500),
    "answers: OffsetFetch": _again("OffsetFetch", "groups", 100),
    "answers: DescribeConfigs": _again("DescribeConfigs", "resources", 20_000),
    "event loop: FindCoordinator": _again("FindCoordinator", "coordinator_keys", 499_000),
    "event loop: LeaveGroup": _again("LeaveGroup", "members", 200_000, is_distinct=True, members=100),
    "event loop: ListOffsets": _again("ListOffsets", "topics.partitions", 499_000),
    "event loop: ConsumerGroupHeartbeat": many_consumers,
    "event loop: fetch session": wide_session,
    "kept assignments": kept_assignments,
    "unread answers": unread_answers,
    "HTTP bodies without an end": http_bodies,
    "HTTP heads without an end": http_heads,
    "Flight uploads without a batch": flight_uploads,
    **ydb_attacks.ATTACKS,
    "native wire: silence": native_silence,
    "native wire: followers": native_followers,
}

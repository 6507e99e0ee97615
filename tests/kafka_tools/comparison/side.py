"""One of the two servers that are compared, as probes use it, and the list of probes.

    @probe("Fetch: above the end")                       a function of a side; what it returns is compared
    @probe("…", differs="a phrase of docs/kafka.md")     it is known to differ, and the page says so

Both servers take requests with the same fields: a probe says only those that matter.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import Record, built

PATIENCE_SECONDS: Final = 60.0
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, SYNC_GROUP, CREATE_TOPICS, DELETE_RECORDS = 11, 14, 19, 21
HOUR_MS: Final = 3_600_000
# In a record batch.
ATTRIBUTES_PLACE: Final = 21
# What a coordinator that begins says: it loads, is not chosen, or is another one.
_BEGINNING: Final = {"coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}


Configs = Mapping[str, str]
NO_CONFIGS: Final[Configs] = {}


def named(code: int) -> str:
    """An error by its name."""
    return ErrorCode(code).name


@dataclass
class Side:
    """A server at a port. Topics and groups that a probe makes are its own."""

    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def client(self) -> Iterator[RawClient]:
        """A connection."""
        with RawClient(self.port) as client:
            yield client

    def call(self, api_key: int, version: int, **fields: Any) -> SimpleNamespace:
        """One request over a connection of its own; a connection that is closed is an answer too."""
        with self.client() as client:
            return client.call(api_key, version, **fields)

    def topic(self, partitions: int = 1, configs: Configs = NO_CONFIGS) -> str:
        """A new topic, which can be used at once."""
        name = f"probe-{next(self._numbers)}"
        told = [{"name": key, "value": value} for key, value in configs.items()]
        new = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": told}
        (made,) = self.call(CREATE_TOPICS, 7, topics=[new], timeout=30_000).topics
        assert not made.error_code, named(made.error_code)
        self.wait(lambda: self._is_led(name, partitions))
        return name

    def _is_led(self, name: str, partitions: int) -> bool:
        (topic,) = self.call(METADATA, 9, topics=[{"name": name}]).topics
        # What Metadata shows a moment before the partition can be used.
        return len(topic.partitions) == partitions and all(
            self.offsets(name, -1, partition=number, current_leader_epoch=0) == [("none", 0)]
            for number in range(partitions)
        )

    def topic_id(self, name: str) -> UUID:
        """The id of a topic."""
        (topic,) = self.call(METADATA, 12, topics=[{"name": name}]).topics
        return UUID(str(topic.topic_id))

    def group(self) -> str:
        """The name of a group whose coordinator is ready."""
        name = f"group-{next(self._numbers)}"

        def is_ready() -> bool:
            (found,) = self.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[name]).coordinators
            (asked,) = self.call(OFFSET_FETCH, 8, groups=[{"group_id": name, "topics": None}]).groups
            return not {named(found.error_code), named(asked.error_code)} & _BEGINNING

        self.wait(is_ready)
        return name

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Ask again until it is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_done():
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.05)

    def produce(self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, **more: Any) -> Any:
        """The answer for one partition."""
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        (answer,) = self.call(PRODUCE, 9, acks=acks, timeout=10_000, topic_data=data, **more).responses
        return answer.partition_responses[0]

    def fill(self, topic: str, count: int, partition: int = 0, first_ms: int | None = None) -> None:
        """Messages in a batch, created a second after one another."""
        begin = self.now_ms - 3_600_000 if first_ms is None else first_ms
        rows: list[Record] = [(begin + 1000 * number, b"k", b"v%d" % number, []) for number in range(count)]
        assert not self.produce(topic, built(rows), partition=partition).error_code

    def fetch(self, topic: str, offset: int = 0, partition: int = 0, **more: Any) -> Any:
        """The answer for one partition, without waiting."""
        fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1} | more
        epoch = fields.pop("current_leader_epoch", -1)
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic, "partitions": [asked | {"current_leader_epoch": epoch}]}]
        (answer,) = self.call(FETCH, 11, topics=topics, **fields).responses
        return answer.partitions[0]

    def offsets(self, topic: str, *times: int, partition: int = 0, **more: Any) -> list[tuple[str, int]]:
        """What ListOffsets says of one partition."""
        found = []
        for each in times:
            asked = {"partition_index": partition, "timestamp": each, "current_leader_epoch": -1} | more
            (answer,) = self.call(LIST_OFFSETS, 10, topics=[{"name": topic, "partitions": [asked]}]).topics
            found.append((named(answer.partitions[0].error_code), answer.partitions[0].offset))
        return found

    def commit(self, group: str, topic: str, offset: int, partition: int = 0, **more: Any) -> str:
        """Commit as a client that is not a member."""
        which = {"member_id": "", "generation_id_or_member_epoch": -1}
        which |= {key: more.pop(key) for key in list(more) if key in which}
        told = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""} | more
        topics = [{"name": topic, "partitions": [told]}]
        return named(
            self.call(OFFSET_COMMIT, 8, group_id=group, topics=topics, **which).topics[0].partitions[0].error_code
        )

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[Any, ...]:
        """What OffsetFetch says of one partition."""
        topics = [{"name": topic, "partition_indexes": [partition]}]
        (answer,) = self.call(OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": topics}]).groups
        one = answer.topics[0].partitions[0]
        return named(one.error_code), one.committed_offset, one.committed_leader_epoch, one.metadata

    def joining(self, group: str, topic: str = "", **more: Any) -> dict[str, Any]:
        """The fields of JoinGroup, of a member that reads a topic or nothing."""
        topics = [topic.encode()] if topic else []
        named = b"".join(struct.pack(">h", len(each)) + each for each in topics)
        metadata = struct.pack(">hi", 1, len(topics)) + named + b"\xff\xff\xff\xff"
        fields = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000, "member_id": ""}
        protocols = [{"name": "range", "metadata": metadata}]
        return fields | {"protocol_type": "consumer", "protocols": protocols} | more

    def member(self, client: RawClient, group: str, topic: str = "") -> tuple[str, int]:
        """Join and synchronise as the only member: its id and generation."""
        member_id = client.call(JOIN_GROUP, 5, **self.joining(group, topic)).member_id
        generation = client.call(JOIN_GROUP, 5, **self.joining(group, topic, member_id=member_id)).generation_id
        given = [{"member_id": member_id, "assignment": b"mine"}]
        one = {"group_id": group, "member_id": member_id, "generation_id": generation}
        assert not client.call(SYNC_GROUP, 3, **one, assignments=given).error_code
        return member_id, generation

    @property
    def now_ms(self) -> int:
        """The time that both servers and this process have."""
        return int(time.time() * 1000)


def one(side: Side, value: bytes = b"v", codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch of one record of now."""
    return built([(side.now_ms, None, value, [])], codec, producer)


Run = Callable[[Side], object]


@dataclass(frozen=True)
class Probe:
    """A question to both servers; `differs` is what docs/kafka.md says of a difference that is known."""

    name: str
    run: Run
    differs: str

    def answer(self, side: Side) -> str:
        """What a side answers, in words."""
        with suppress(EOFError, ConnectionError):
            return shown(self.run(side))
        return "closes the connection"


PROBES: Final[list[Probe]] = []


def probe(name: str, differs: str = "") -> Callable[[Run], Run]:
    """Add a function to the probes."""

    def add(run: Run) -> Run:
        PROBES.append(Probe(name, run, differs))
        return run

    return add


def shown(value: object) -> str:
    """An answer on one line."""
    if isinstance(value, tuple | list):
        return " ".join(shown(each) for each in value)
    return str(value)

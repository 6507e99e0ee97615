"""`python -m tests.campaign.mixed_member KIND ADDRESS TOPIC GROUP NUMBER`: a member of a group in a process of its own.

It prints what it was given, and what it committed, as events of a history (`headrace.verify`): each in one write, and
what it was given before it commits any of it, so that a kill loses no event that counts. A line of its input asks it to
stay; at the end of its input it leaves.

A commit counts as made if the server said so of an owner. Of a lost partition cursus' clients are told OK all the same,
so what they commit is known from looks at the group only.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

import confluent_kafka as confluent
import msgspec
import ydb
from cursus.protocol.decoder import decode_batch

import headrace
from headrace.client import Client
from headrace.core.errors import HeadraceError
from headrace.verify.history.events import Event, OffsetsCommitted, Outcome, Poll
from headrace.verify.history.file import Recorder
from headrace.verify.members import Members, runs_of
from headrace.verify.publishers import message_id
from tests.protocols.cursus.raw import RawCursus, envelope

# What transactions write the messages of a topic to.
COPIES: Final = "copies-of-"

_SESSION_SECONDS: Final = 3.0
_WAIT_SECONDS: Final = 0.3
_MESSAGES_MAX: Final = 400
_ANSWER_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 0.5


class _Printer:
    """Where events go; a line is shorter than what a pipe takes at once, or its reader waits for the rest."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        """Print an event, before anything else happens."""
        line = memoryview(self._encoder.encode(event) + b"\n")
        with self._lock:
            while line:
                line = line[os.write(1, line) :]


class Member(NamedTuple):
    """What a member knows of itself."""

    address: str
    topic: str
    group: str
    number: int
    printer: _Printer
    stop: threading.Event
    stay: threading.Event

    @property
    def name(self) -> str:
        return f"{self.group}-{self.number}"

    def connect(self) -> Client:
        """A client of this library."""
        return headrace.connect(self.address.split(","), timeout_seconds=_ANSWER_SECONDS)

    def given(
        self, rows: Iterable[tuple[int, int, bytes]], called_ns: int, owned: tuple[str, int, list[int]] | None = None
    ) -> dict[int, int]:
        """Messages were given: partition, offset and value of each; returns what is next in each partition.

        owned: the name of the member at the server, a generation, and its partitions then, if its protocol tells.
        """
        runs: list[tuple[int, int, list[str]]] = []
        for partition, offset, value in rows:
            if runs and runs[-1][0] == partition and runs[-1][1] + len(runs[-1][2]) == offset:
                runs[-1][2].append(message_id(value))
            else:
                runs.append((partition, offset, [message_id(value)]))
        name, number, partitions = owned or (self.name, None, [])
        self.printer.record(Poll(self.group, name, number, partitions, runs, called_ns, time.monotonic_ns()))
        return {partition: offset + len(ids) for partition, offset, ids in runs}

    def committed(self, offsets: dict[int, int], outcome: Outcome, called_ns: int, error: object = "") -> None:
        """Offsets were committed, or maybe not."""
        if offsets:
            ended_ns = time.monotonic_ns()
            self.printer.record(
                OffsetsCommitted(self.group, self.name, offsets, outcome, called_ns, ended_ns, str(error)[:200])
            )


def native(member: Member) -> None:
    """A consumer of this library, one after another, as `headrace verify` has them."""
    printer = cast(Recorder, member.printer)
    members = Members(member.group, member.number, member.topic, printer, member.number)
    members.run(member.connect, member.stop, member.stay)


def copier(member: Member) -> None:
    """Messages and the offsets that they were read up to, in one transaction; after an error a new consumer."""
    with member.connect() as client:
        for attempt in itertools.count():
            if member.stop.wait(_WAIT_SECONDS if attempt else 0):
                break
            try:
                _copy(client, member._replace(number=member.number * 1000 + attempt))
            except HeadraceError:
                continue


def _copy(client: Client, member: Member) -> None:
    with client.consumer(
        member.topic, member.group, member_id=member.name, session_timeout_seconds=_SESSION_SECONDS
    ) as consumer:
        while not member.stop.is_set():
            called_ns = time.monotonic_ns()
            batch = consumer.poll(_MESSAGES_MAX, timeout=_WAIT_SECONDS)
            if not batch.num_rows:
                continue
            generation, partitions = consumer.generation, consumer.assignment
            member.printer.record(
                Poll(member.group, member.name, generation, partitions, runs_of(batch), called_ns, time.monotonic_ns())
            )
            called_ns = time.monotonic_ns()
            outcome: Outcome = "unknown"
            reason = ""
            offsets: dict[int, int] = {}
            try:
                with client.transaction() as transaction:
                    transaction.send_batch(COPIES + member.topic, batch.select(["value"]))
                    offsets = {each: to for asked in consumer.uncommitted() for each, to in asked.offsets.items()}
                    transaction.send_offsets(consumer)
                outcome = "ok"
            except HeadraceError as error:
                reason = f"{error.code}: {error}"
                raise
            finally:
                member.committed(offsets, outcome, called_ns, reason)


def classic(member: Member) -> None:
    """librdkafka, in a group whose members assign."""
    _kafka(member, {"group.protocol": "classic", "session.timeout.ms": 3_000, "heartbeat.interval.ms": 500})


def kip848(member: Member) -> None:
    """librdkafka, in a group whose partitions the server assigns."""
    _kafka(member, {"group.protocol": "consumer"})


def _kafka(member: Member, more: dict[str, Any]) -> None:
    while not member.stop.is_set():
        _read_kafka(member, more)


def _read_kafka(member: Member, more: dict[str, Any]) -> None:
    """One consumer, until it is stopped or has an error that it does not recover from."""
    given: dict[int, int] = {}

    def forget(_: Any, partitions: list[Any]) -> None:
        for each in partitions:
            given.pop(each.partition, None)

    consumer = confluent.Consumer(
        {
            "bootstrap.servers": member.address,
            "group.id": member.group,
            "client.id": member.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 0,
            **more,
        }
    )
    consumer.subscribe([member.topic], on_assign=forget, on_revoke=forget, on_lost=forget)
    try:
        is_fatal = False
        while not member.stop.is_set() and not is_fatal:
            called_ns = time.monotonic_ns()
            taken = consumer.consume(_MESSAGES_MAX, _WAIT_SECONDS)
            messages = [each for each in taken if each.error() is None]
            # As a member that the server assigns to is refused while its group has others.
            is_fatal = any(each.error() and each.error().code() == confluent.KafkaError._FATAL for each in taken)
            if messages:
                given |= member.given(((each.partition(), each.offset(), each.value()) for each in messages), called_ns)
            if given:
                _commit_kafka(member, consumer, given)
    except confluent.KafkaException:
        member.stop.wait(_WAIT_SECONDS)
    finally:
        consumer.close()


def _commit_kafka(member: Member, consumer: Any, given: dict[int, int]) -> None:
    asked = [confluent.TopicPartition(member.topic, partition, offset) for partition, offset in given.items()]
    called_ns = time.monotonic_ns()
    try:
        answered = consumer.commit(offsets=asked, asynchronous=False)
    except confluent.KafkaException as error:
        member.committed(given, "unknown", called_ns, error)
        return
    member.committed({each.partition: each.offset for each in answered if each.error is None}, "ok", called_ns)
    given.clear()


def ydb_reader(member: Member) -> None:
    """A read session of YDB's SDK, one after another."""
    with ydb.Driver(endpoint=f"grpc://{member.address}", database="/local") as driver:
        while not member.stop.is_set():
            try:
                driver.wait(timeout=_ANSWER_SECONDS)
                with driver.topic_client.reader(f"/local/{member.topic}", consumer=member.group) as reader:
                    while not member.stop.is_set():
                        _read_ydb(member, reader)
            # The SDK cannot take the answer to a commit that nobody waits for any more.
            except (ydb.Error, TimeoutError, asyncio.InvalidStateError):
                member.stop.wait(_WAIT_SECONDS)


def _read_ydb(member: Member, reader: Any) -> None:
    called_ns = time.monotonic_ns()
    try:
        batch = reader.receive_batch(max_messages=_MESSAGES_MAX, timeout=_WAIT_SECONDS)
    except TimeoutError:
        return
    given = member.given(((each.partition_id, each.offset, each.data) for each in batch.messages), called_ns)
    called_ns = time.monotonic_ns()
    try:
        reader.commit_with_ack(batch, timeout=_ANSWER_SECONDS)
    except (ydb.TopicReaderPartitionExpiredError, TimeoutError) as error:
        member.committed(given, "unknown", called_ns, error)
        return
    member.committed(given, "ok", called_ns)


def cursus(member: Member) -> None:
    """cursus' commands as its clients send them, in one connection after another."""
    while not member.stop.is_set():
        try:
            with RawCursus(int(member.address.rpartition(":")[2])) as client:
                _Cursus(member, client).run()
        except (OSError, EOFError, _Refused):
            member.stop.wait(_WAIT_SECONDS)


class _Refused(Exception):
    """The server answered otherwise than by OK."""


class _Cursus:
    """One membership over one connection."""

    def __init__(self, member: Member, client: RawCursus) -> None:
        self._member = member
        self._client = client
        self._name = member.name
        self._generation = 0
        self._next: dict[int, int] = {}

    def run(self) -> None:
        """Read until stopped."""
        self._join()
        while not self._member.stop.is_set():
            if not self._ask("HEARTBEAT", "").startswith("OK"):
                self._join()
            if not sum(self._read(partition) for partition in list(self._next) if partition in self._next):
                self._member.stop.wait(_WAIT_SECONDS)
        self._ask("LEAVE_GROUP", "")

    def _join(self) -> None:
        named = f"topic={self._member.topic} group={self._member.group}"
        answer = self._client.ask(f"JOIN_GROUP {named} member={self._name}")
        found = re.fullmatch(r"OK generation=(\d+) member=(\S+) assignments=\[([\d ]*)\]", answer)
        if found is None:
            raise _Refused(answer)
        self._generation, self._name = int(found[1]), found[2]
        # Another may have had a partition meanwhile, so what was read before counts no more.
        self._next = {}
        for partition in map(int, found[3].split()):
            asked = self._client.ask(f"FETCH_OFFSET {named} partition={partition}")
            offset = re.fullmatch(r"OK offset=(\d+)", asked)
            if offset is None:
                raise _Refused(asked)
            self._next[partition] = int(offset[1])

    def _ask(self, command: str, more: str) -> str:
        self._client.send(self._command(command, more))
        return self._client.frame().decode(errors="replace")

    def _command(self, command: str, more: str) -> bytes:
        member = self._member
        named = f"topic={member.topic} group={member.group} member={self._name} generation={self._generation}"
        return envelope(f"{command} {named} {more}")

    def _read(self, partition: int) -> bool:
        called_ns = time.monotonic_ns()
        self._client.send(self._command("CONSUME", f"partition={partition} offset={self._next[partition]}"))
        frame = self._client.frame()
        if frame[:2] != b"\xba\x7c":
            self._join()
            return False
        messages = decode_batch(frame)[0]
        if not messages:
            return False
        rows = ((partition, each.offset, each.payload.encode()) for each in messages)
        given = self._member.given(rows, called_ns, (self._name, self._generation, list(self._next)))
        called_ns = time.monotonic_ns()
        self._ask("COMMIT_OFFSET", f"partition={partition} offset={given[partition]}")
        self._member.committed(given, "unknown", called_ns)
        self._next |= given
        return True


KINDS: Final[dict[str, Callable[[Member], None]]] = {
    "native": native,
    "copier": copier,
    "classic": classic,
    "kip848": kip848,
    "ydb": ydb_reader,
    "cursus": cursus,
}


def main() -> None:
    """Be a member until the input ends."""
    kind, address, topic, group, number = sys.argv[1:]
    stop, stay = threading.Event(), threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            stay.set()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    KINDS[kind](Member(address, topic, group, int(number), _Printer(), stop, stay))


if __name__ == "__main__":
    main()
